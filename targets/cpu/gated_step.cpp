// Gate and up, their gated product and its quantisation, by blocks of rows and of outputs: what the two products give
// stays in the cache of the thread that needs it (a whole step of it would be 32 MB for 512 rows of 8,192 outputs).
#include "kernels/matmul/matmul.h"
#include "quant/relayout.h"
#include "targets/cpu/aligned_bytes.h"
#include "targets/cpu/row_part.h"
#include "targets/cpu/steps.h"

namespace onw::cpu {

struct GatedWork {
  AlignedBytes memory;
};

namespace {

class LinearGated final : public PlanStep {
 public:
  LinearGated(std::string label, const LinearGatedStep& s, std::shared_ptr<GatedWork> work)
      : PlanStep(std::move(label)), s_(s), work_(std::move(work)) {}

  int64_t weight_bytes() const override {
    return static_cast<int64_t>(s_.weight.codes.size() + s_.weight.scales.size() + s_.weight.minima.size());
  }

  int64_t weight_values() const override { return s_.weight.outputs * s_.weight.inputs; }

  void run(const RunContext& c) override {
    const QuantizedRows x = s_.x.q8(c), y = s_.y.q8(c);
    const int64_t each = c.rows > kFewRows ? kBlockOutputs : std::max<int64_t>(kFewRowsOutputs, s_.y.group);
    c.pool->parallel_for(ceil_div(s_.y.width, each), [&](int64_t first, int64_t last, int thread) {
      for (int64_t task = first; task < last; ++task)
        for (int64_t row = 0; row < c.rows; row += kBlockRows)
          block(c, x, y,
                {row, std::min(kBlockRows, c.rows - row), task * each, std::min(s_.y.width, (task + 1) * each)},
                thread);
    });
  }

 private:
  struct Block {
    int64_t first_row, rows, begin, end;
  };

  // Outputs [begin, end) of gate or up (`half` 0 or 1) for the rows of `x`.
  void product(const RunContext& c, const QuantizedRows& x, const Block& b, int64_t half, float* to) const {
    const int64_t begin = half * s_.y.width + b.begin, blocks = (b.end - b.begin) / 16;
    const WeightView weight = block_view(s_.weight, begin / 16, begin / 16 + blocks);
    const MatmulOutput out{
        .y = to, .stride = 2 * (b.end - b.begin), .bias = s_.bias.empty() ? nullptr : s_.bias.data() + begin};
    matmul(x, weight, {0, blocks}, out, c.isa);
  }

  void block(const RunContext& c, const QuantizedRows& x, const QuantizedRows& y, const Block& b, int thread) const {
    float* both = reinterpret_cast<float*>(work_->memory.get()) + thread * kThreadFloats;
    const int64_t width = b.end - b.begin;
    const QuantizedRows rows = row_part(x, b.first_row, b.rows);
    product(c, rows, b, 0, both);
    product(c, rows, b, 1, both + width);
    for (int64_t r = 0; r < b.rows; ++r)
      c.row_ops->gated_quantise(s_.kind, both + r * 2 * width, both + r * 2 * width + width,
                                {&y, b.first_row + r, b.begin, b.end});
  }

  LinearGatedStep s_;
  std::shared_ptr<GatedWork> work_;
};

}  // namespace

StepPtr make_linear_gated(std::string label, const LinearGatedStep& step, const PlanOptions& options,
                          std::shared_ptr<GatedWork>& work) {
  CHECK(step.y.width % 16 == 0 && kBlockOutputs % step.y.group == 0);
  if (!work)
    work = std::make_shared<GatedWork>(
        aligned_bytes(kThreadFloats * static_cast<int64_t>(sizeof(float)) * options.threads));
  return std::make_unique<LinearGated>(std::move(label), step, work);
}

}  // namespace onw::cpu
