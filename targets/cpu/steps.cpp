#include "targets/cpu/steps.h"

#include "base/checked.h"
#include "graph/ops.h"
#include "kernels/matmul/matmul.h"
#include "quant/relayout.h"

namespace onw::cpu {
namespace {

// Work below this many elements is not worth waking a thread for.
constexpr int64_t kElementsPerTask = 16384;

// Rows that one task takes, so that tasks have some size.
int64_t rows_per_task(int64_t width) { return std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(width, 1)); }

// f(first row, last row) over all rows, in tasks of some size.
template <class F>
void for_rows(const RunContext& c, int64_t width, F f) {
  const int64_t each = rows_per_task(width), tasks = ceil_div(c.rows, each);
  if (tasks <= 1) return f(0, c.rows);
  c.pool->parallel_for(tasks,
                       [&](int64_t first, int64_t last, int) { f(first * each, std::min(last * each, c.rows)); });
}

class Linear final : public PlanStep {
 public:
  Linear(std::string label, const LinearStep& s) : PlanStep(std::move(label)), s_(s) {}

  int64_t weight_bytes() const override {
    return static_cast<int64_t>(s_.weight.codes.size() + s_.weight.scales.size() + s_.weight.minima.size());
  }

  int64_t weight_values() const override { return s_.weight.outputs * s_.weight.inputs; }

  void run(const RunContext& c) override {
    MatmulOutput out{.y = s_.y.f32(c), .stride = s_.y.stride, .bias = s_.bias.empty() ? nullptr : s_.bias.data()};
    if (s_.residual.offset >= 0) out.residual = s_.residual.f32(c), out.residual_stride = s_.residual.stride;
    const int64_t blocks = output_blocks(s_.weight), pairs = ceil_div(blocks, 2);
    const QuantizedRows q = s_.x.group > 0 ? s_.x.q8(c) : QuantizedRows{};
    const FloatRows f{s_.x.group > 0 ? nullptr : s_.x.f32(c), c.rows, s_.x.stride};
    c.pool->parallel_for(pairs, [&](int64_t first, int64_t last, int) {
      const BlockRange range{first * 2, std::min(last * 2, blocks)};
      if (s_.x.group > 0)
        matmul(q, s_.weight, range, out, c.isa);
      else
        matmul(f, s_.weight, range, out, c.isa);
    });
  }

 private:
  LinearStep s_;
};

class NormOp final : public PlanStep {
 public:
  NormOp(std::string label, const NormStep& s) : PlanStep(std::move(label)), s_(s) {
    norm_ = {.weight = s.weight.empty() ? nullptr : s_.weight.data(),
             .bias = s.bias.empty() ? nullptr : s_.bias.data(),
             .eps = s.eps};
  }

  void run(const RunContext& c) override {
    const RowOps& ops = *c.row_ops;
    if (s_.op == Op::rms_norm_quantize) {
      const QuantizedRows q = s_.y.q8(c);
      return for_rows(c, s_.x.width, [&](int64_t first, int64_t last) {
        for (int64_t r = first; r < last; ++r) ops.rms_norm_quantise(norm_, s_.x.f32(c) + r * s_.x.stride, q, r);
      });
    }
    for_rows(c, s_.x.width, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r)
        for (int64_t i = 0; i < s_.x.width; i += s_.last)
          one(ops, s_.x.f32(c) + r * s_.x.stride + i, s_.y.f32(c) + r * s_.y.stride + i);
    });
  }

 private:
  void one(const RowOps& ops, const float* x, float* y) const {
    if (s_.op == Op::rms_norm)
      ops.rms_norm(norm_, x, s_.last, y);
    else if (s_.op == Op::layer_norm)
      ops.layer_norm(norm_, x, s_.last, y);
    else
      ops.l2_norm(s_.eps, x, s_.last, y);
  }

  NormStep s_;
  Norm norm_;
};

class Rope final : public PlanStep {
 public:
  Rope(std::string label, const RopeStep& s) : PlanStep(std::move(label)), s_(s) {}

  void run(const RunContext& c) override {
    for_rows(c, s_.x.width, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const float* x = s_.x.f32(c) + r * s_.x.stride;
        float* y = s_.y.f32(c) + r * s_.y.stride;
        if (x != y) std::copy_n(x, s_.x.width, y);
        for (int64_t h = 0; h < s_.heads; ++h)
          c.row_ops->rope(y + h * s_.head_dim, s_.cos.f32(c) + r * s_.cos.stride, s_.sin.f32(c) + r * s_.sin.stride,
                          s_.cos.width);
      }
    });
  }

 private:
  RopeStep s_;
};

class Gated final : public PlanStep {
 public:
  Gated(std::string label, const GatedStep& s) : PlanStep(std::move(label)), s_(s) {}

  void run(const RunContext& c) override {
    if (s_.y.group == 0) return plain(c);
    const QuantizedRows q = s_.y.q8(c);
    // Groups of a row are independent: a single wide row is shared by the threads too.
    const int64_t groups = s_.y.width / s_.y.group,
                  tasks_per_row = std::max<int64_t>(1, std::min<int64_t>(groups, s_.y.width / 2048));
    c.pool->parallel_for(c.rows * tasks_per_row, [&](int64_t first, int64_t last, int) {
      for (int64_t t = first; t < last; ++t) {
        const int64_t r = t / tasks_per_row, part = t % tasks_per_row;
        const int64_t begin = groups * part / tasks_per_row * s_.y.group,
                      end = groups * (part + 1) / tasks_per_row * s_.y.group;
        c.row_ops->gated_quantise(s_.kind, s_.gate.f32(c) + r * s_.gate.stride + begin,
                                  s_.up.f32(c) + r * s_.up.stride + begin, {&q, r, begin, end});
      }
    });
  }

 private:
  void plain(const RunContext& c) {
    for_rows(c, s_.y.width, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r)
        c.row_ops->gated(s_.kind, s_.gate.f32(c) + r * s_.gate.stride, s_.up.f32(c) + r * s_.up.stride, s_.y.width,
                         s_.y.f32(c) + r * s_.y.stride);
    });
  }

  GatedStep s_;
};

class Quantise final : public PlanStep {
 public:
  Quantise(std::string label, const Slot& x, const Slot& y) : PlanStep(std::move(label)), x_(x), y_(y) {}

  void run(const RunContext& c) override {
    const QuantizedRows q = y_.q8(c);
    for_rows(c, x_.width, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) c.row_ops->quantise(x_.f32(c) + r * x_.stride, {&q, r, 0, y_.width});
    });
  }

 private:
  Slot x_, y_;
};

class Element final : public PlanStep {
 public:
  Element(std::string label, const ElementStep& s) : PlanStep(std::move(label)), s_(s) {}

  void run(const RunContext& c) override {
    for_rows(c, s_.y.width, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) one(c, r);
    });
  }

 private:
  void one(const RunContext& c, int64_t r) const {
    const RowOps& ops = *c.row_ops;
    const float* a = s_.a.f32(c) + r * s_.a.stride;
    const float* b = !s_.shared_b.empty() ? s_.shared_b.data()
                     : s_.b.offset >= 0   ? s_.b.f32(c) + r * s_.b.stride
                                          : nullptr;
    float* y = s_.y.f32(c) + r * s_.y.stride;
    switch (s_.op) {
      case Op::add:
        return ops.add(a, b, s_.y.width, y);
      case Op::multiply:
        if (s_.shared_b.size() == 1) return ops.scale(*b, a, s_.y.width, y);
        return s_.a.width < s_.y.width ? ops.scale(*a, b, s_.y.width, y) : ops.multiply(a, b, s_.y.width, y);
      case Op::scale:
        return ops.scale(s_.number, a, s_.y.width, y);
      case Op::soft_cap:
        return ops.soft_cap(s_.number, a, s_.y.width, y);
      default:
        return ops.activate(s_.activation, a, s_.y.width, y);
    }
  }

  ElementStep s_;
};

}  // namespace

StepPtr make_linear(std::string label, const LinearStep& step) {
  return std::make_unique<Linear>(std::move(label), step);
}
StepPtr make_norm(std::string label, const NormStep& step) { return std::make_unique<NormOp>(std::move(label), step); }
StepPtr make_rope(std::string label, const RopeStep& step) { return std::make_unique<Rope>(std::move(label), step); }
StepPtr make_gated(std::string label, const GatedStep& step) { return std::make_unique<Gated>(std::move(label), step); }
StepPtr make_quantise(std::string label, const Slot& x, const Slot& y) {
  return std::make_unique<Quantise>(std::move(label), x, y);
}
StepPtr make_element(std::string label, const ElementStep& step) {
  return std::make_unique<Element>(std::move(label), step);
}

}  // namespace onw::cpu
