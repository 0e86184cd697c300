#include "targets/cpu/hadamard_step.h"

#include "kernels/hadamard/hadamard.h"

namespace onw::cpu {
namespace {

// Work below this many elements is not worth waking a thread for.
constexpr int64_t kElementsPerTask = 16384;

class HadamardOp final : public PlanStep {
 public:
  HadamardOp(std::string label, const HadamardStep& s) : PlanStep(std::move(label)), s_(s) {}

  // Blocks do not depend on each other: threads share those of all rows.
  void run(const RunContext& c) override {
    const int64_t blocks = s_.x.width / s_.block, all = c.rows * blocks;
    const auto part = [&](int64_t first, int64_t last, int) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t row = i / blocks, at = i % blocks * s_.block;
        hadamard({s_.signs.data() + at, s_.block, s_.block, s_.inverse}, s_.x.f32(c) + row * s_.x.stride + at,
                 s_.y.f32(c) + row * s_.y.stride + at, c.isa);
      }
    };
    if (all * s_.block <= kElementsPerTask) return part(0, all, 0);
    c.pool->parallel_for(all, part);
  }

 private:
  HadamardStep s_;
};

}  // namespace

StepPtr make_hadamard(std::string label, const HadamardStep& step) {
  return std::make_unique<HadamardOp>(std::move(label), step);
}

}  // namespace onw::cpu
