// A mixture of experts: rows are sorted by expert, so that each expert's weights are read once a step. First gate, up
// and what stands between, by expert and block of its outputs; then down, by block of outputs, expert after expert in
// ascending order, so that every sum has the same order however the work is cut. docs/arithmetic.md has the arithmetic.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.h"
#include "graph/shape_rules.h"
#include "kernels/matmul/matmul.h"
#include "quant/relayout.h"
#include "targets/cpu/row_part.h"
#include "targets/cpu/steps.h"

namespace onw::cpu {
namespace {

constexpr int64_t kGatherBytes = 1 << 16;  // below, one thread gathers faster than many begin to

// Rows of one kind: codes, or FP32.
struct Rows {
  QuantizedRows q;
  float* f = nullptr;
  int64_t stride = 0;

  Rows part(int64_t first, int64_t rows) const {
    if (f == nullptr) return {row_part(q, first, rows), nullptr, 0};
    return {{}, f + first * stride, stride};
  }
};

// Where the scratch of a step lies, behind each other from an offset that is a multiple of 64.
struct Scratch {
  int64_t row_of = 0, weight_of = 0, x = 0, inner = 0, threads = 0, end = 0;
};

int64_t rows_bytes(int64_t rows, int64_t width, int32_t group) {
  return group > 0 ? static_cast<int64_t>(quantized_rows_bytes(rows, width, group)) : round_up(rows * width * 4, 64);
}

// Rows of all experts, each expert's rounded up by itself: so many more at most, and so many ends.
int64_t most_bytes(int64_t pairs, int64_t experts, int64_t width, int32_t group) {
  constexpr int64_t kMostPadding = 15, kAlignments = 3 * 64;
  const int64_t active = std::min(pairs, experts);
  return rows_bytes(pairs + active * kMostPadding, width, group) + active * kAlignments;
}

Scratch scratch_of(const ExpertsStep& s) {
  const int64_t pairs = s.most_rows * s.route.width / 2;
  Scratch at;
  auto take = [end = int64_t{0}](int64_t bytes) mutable {
    const int64_t begin = end;
    end += round_up(bytes, 64);
    return begin;
  };
  at.row_of = take(pairs * 4);
  at.weight_of = take(pairs * 4);
  at.x = take(most_bytes(pairs, s.gate.experts, s.gate.inputs, s.x.group));
  at.inner = take(most_bytes(pairs, s.gate.experts, s.gate.outputs, s.group));
  at.threads = take(s.threads * kThreadFloats * 4);
  at.end = take(0);
  return at;
}

class Route final : public PlanStep {
 public:
  Route(std::string label, const RouteStep& s) : PlanStep(std::move(label)), s_(s) {}

  void run(const RunContext& c) override {
    const auto rows = [&](int64_t first, int64_t last, int) {
      for (int64_t r = first; r < last; ++r) one(c, r);
    };
    if (c.rows < 8) return rows(0, c.rows, 0);
    c.pool->parallel_for(c.rows, rows);
  }

 private:
  // What is not finite goes on as NaN, and is found in the logits.
  void one(const RunContext& c, int64_t r) const {
    std::array<int32_t, kMostExperts> ids;
    const auto k = static_cast<size_t>(s_.k);
    float* y = s_.y.f32(c) + r * s_.y.stride;
    (void)route(s_.form, {s_.logits.f32(c) + r * s_.logits.stride, static_cast<size_t>(s_.logits.width)},
                std::span(ids).first(k), {y, k});
    for (size_t i = 0; i < k; ++i) y[k + i] = static_cast<float>(ids[i]);
  }

  RouteStep s_;
};

class Experts final : public PlanStep {
 public:
  Experts(std::string label, const ExpertsStep& s) : PlanStep(std::move(label)), s_(s), at_(scratch_of(s)) {
    const auto count = static_cast<size_t>(s.gate.experts);
    first_.resize(count + 1);
    active_.reserve(count);
  }

  int64_t weight_bytes() const override {
    return (s_.gate.stored_bytes() + s_.up.stored_bytes() + s_.down.stored_bytes()) / s_.gate.experts * k();
  }

  int64_t weight_values() const override {
    return k() * (2 * s_.gate.outputs * s_.gate.inputs + s_.down.outputs * s_.down.inputs);
  }

  void run(const RunContext& c) override {
    sort_rows(c);
    gather(c);
    gate_and_up(c);
    down(c);
  }

 private:
  struct Active {
    int64_t expert = 0, first = 0, rows = 0;  // pairs [first, first + rows)
    Rows x, inner;
  };
  // Outputs [begin, end), for the rows of one expert that begin at `row`.
  struct Block {
    int64_t row, rows, begin, end;
  };

  int64_t k() const { return s_.route.width / 2; }
  std::byte* scratch(const RunContext& c, int64_t at) const { return c.arena + s_.scratch + at; }
  int32_t* row_of(const RunContext& c) const { return reinterpret_cast<int32_t*>(scratch(c, at_.row_of)); }
  float* weight_of(const RunContext& c) const { return reinterpret_cast<float*>(scratch(c, at_.weight_of)); }
  float* thread_floats(const RunContext& c, int thread) const {
    return reinterpret_cast<float*>(scratch(c, at_.threads)) + thread * kThreadFloats;
  }

  // Pairs of row and weight by expert, rows ascending; and the experts that there are.
  void sort_rows(const RunContext& c) {
    std::ranges::fill(first_, 0);
    const auto each = [&](auto f) {
      for (int64_t r = 0; r < c.rows; ++r) {
        const float* route = s_.route.f32(c) + r * s_.route.stride;
        for (int64_t i = 0; i < k(); ++i) f(r, static_cast<size_t>(route[k() + i]), route[i]);
      }
    };
    each([&](int64_t, size_t e, float) { ++first_[e + 1]; });
    for (size_t e = 1; e < first_.size(); ++e) first_[e] += first_[e - 1];
    each([&](int64_t r, size_t e, float weight) {
      const int64_t at = first_[e]++;
      row_of(c)[at] = static_cast<int32_t>(r);
      weight_of(c)[at] = weight;
    });
    active_.clear();  // now first_[e] is where e ends
    int64_t x = at_.x, inner = at_.inner, begin = 0;
    for (size_t e = 0; e + 1 < first_.size(); begin = first_[e++]) {
      const int64_t rows = first_[e] - begin;
      if (rows == 0) continue;
      active_.push_back({static_cast<int64_t>(e), begin, rows, place(c, x, rows, s_.gate.inputs, s_.x.group),
                         place(c, inner, rows, s_.gate.outputs, s_.group)});
    }
  }

  Rows place(const RunContext& c, int64_t& at, int64_t rows, int64_t width, int32_t group) const {
    std::byte* memory = scratch(c, at);
    at += rows_bytes(rows, width, group);
    if (group > 0) return {place_quantized_rows(memory, rows, width, group), nullptr, 0};
    return {{}, reinterpret_cast<float*>(memory), width};
  }

  // Each expert's rows of x side by side. A single row is every expert's.
  void gather(const RunContext& c) {
    const Rows all = s_.x.group > 0 ? Rows{s_.x.q8(c)} : Rows{{}, s_.x.f32(c), s_.x.stride};
    if (c.rows == 1) {
      for (Active& a : active_) a.x = all;
      return;
    }
    const auto copy = [&](int64_t first, int64_t last, int) {
      for (int64_t i = first; i < last; ++i) gather(c, all, active_[static_cast<size_t>(i)]);
    };
    const auto count = static_cast<int64_t>(active_.size());
    if (c.rows * k() * s_.gate.inputs < kGatherBytes) return copy(0, count, 0);
    c.pool->parallel_for(count, copy);
  }

  void gather(const RunContext& c, const Rows& all, const Active& a) const {
    const int32_t* rows = row_of(c) + a.first;
    if (all.f != nullptr) {
      for (int64_t i = 0; i < a.rows; ++i)
        std::copy_n(all.f + rows[i] * all.stride, s_.gate.inputs, a.x.f + i * a.x.stride);
      return;
    }
    const QuantizedRows &from = all.q, &to = a.x.q;
    const int64_t group = from.group;
    for (int64_t g = 0; g < from.inputs / group; ++g)
      for (int64_t i = 0; i < a.rows; ++i) {
        const int64_t source = g * from.row_stride + rows[i], at = g * to.row_stride + i;
        std::memcpy(to.codes + at * group, from.codes + source * group, static_cast<size_t>(group));
        to.scales[at] = from.scales[source];
      }
    for (int64_t part = 0; part < from.inputs / 32; ++part)
      for (int64_t i = 0; i < a.rows; ++i)
        to.sums[part * to.row_stride + i] = from.sums[part * from.row_stride + rows[i]];
  }

  // Outputs of a task, and at most of the tasks in a row that a thread does at once: with few rows reading weights is
  // the work, and long pieces of an expert are read faster than short ones (13 % of a token of 128 experts of 768;
  // Xeon, 2026-11).
  static int64_t task_outputs(const RunContext& c, int64_t least) {
    return c.rows > kFewRows ? kBlockOutputs : std::max(kFewRowsOutputs, least);
  }
  static int64_t most_outputs(const RunContext& c) { return c.rows > kFewRows ? kBlockOutputs : kFewRowsMostOutputs; }

  void gate_and_up(const RunContext& c) const {
    const int64_t width = s_.gate.outputs, each = task_outputs(c, s_.group), most = most_outputs(c) / each;
    const int64_t tasks = ceil_div(width, each);  // of one expert
    c.pool->parallel_for(static_cast<int64_t>(active_.size()) * tasks, [&](int64_t first, int64_t last, int thread) {
      for (int64_t t = first, end = 0; t < last; t = end) {
        end = std::min({last, t + most, (t / tasks + 1) * tasks});  // of the same expert
        const Active& a = active_[static_cast<size_t>(t / tasks)];
        const int64_t begin = t % tasks * each, outputs = std::min(width - begin, (end - t) * each);
        for (int64_t row = 0; row < a.rows; row += kBlockRows)
          inner_block(c, a, {row, std::min(kBlockRows, a.rows - row), begin, begin + outputs},
                      thread_floats(c, thread));
      }
    });
  }

  void inner_block(const RunContext& c, const Active& a, const Block& b, float* both) const {
    const int64_t width = b.end - b.begin;
    const MatmulOutput gate{.y = both, .stride = 2 * width}, up{.y = both + width, .stride = 2 * width};
    product(c, a.x, {s_.gate.expert(a.expert), s_.gate_bias, a.expert}, b, gate);
    product(c, a.x, {s_.up.expert(a.expert), s_.up_bias, a.expert}, b, up);
    for (int64_t r = 0; r < b.rows; ++r) {
      const float* from = both + r * 2 * width;
      if (a.inner.f == nullptr)
        c.row_ops->gated_quantise(s_.kind, from, from + width, {&a.inner.q, b.row + r, b.begin, b.end});
      else
        c.row_ops->gated(s_.kind, from, from + width, width, a.inner.f + (b.row + r) * a.inner.stride + b.begin);
    }
  }

  void down(const RunContext& c) const {
    const int64_t width = s_.y.width, each = task_outputs(c, 0), most = most_outputs(c) / each;
    c.pool->parallel_for(ceil_div(width, each), [&](int64_t first, int64_t last, int thread) {
      for (int64_t t = first, next = 0; t < last; t = next) {
        next = std::min(last, t + most);
        const int64_t begin = t * each, end = std::min(width, next * each);
        for (int64_t r = 0; r < c.rows; ++r) std::fill_n(s_.y.f32(c) + r * s_.y.stride + begin, end - begin, 0.0f);
        for (const Active& a : active_)
          for (int64_t row = 0; row < a.rows; row += kBlockRows)
            down_block(c, a, {row, std::min(kBlockRows, a.rows - row), begin, end}, thread_floats(c, thread));
      }
    });
  }

  void down_block(const RunContext& c, const Active& a, const Block& b, float* out) const {
    const int64_t width = b.end - b.begin;
    product(c, a.inner, {s_.down.expert(a.expert), s_.down_bias, a.expert}, b, {.y = out, .stride = width});
    for (int64_t r = 0; r < b.rows; ++r) {
      const int64_t pair = a.first + b.row + r;
      const float weight = weight_of(c)[pair];
      float* y = s_.y.f32(c) + row_of(c)[pair] * s_.y.stride + b.begin;
      const float* from = out + r * width;
      for (int64_t i = 0; i < width; ++i) y[i] = y[i] + weight * from[i];
    }
  }

  struct Weight {
    WeightView weight;
    const WeightView& biases;
    int64_t expert;
  };

  // The block's rows times its outputs of one expert's weight.
  void product(const RunContext& c, const Rows& x, const Weight& w, const Block& b, MatmulOutput out) const {
    const int64_t blocks = ceil_div(b.end - b.begin, 16);
    const WeightView weight = block_view(w.weight, b.begin / 16, b.begin / 16 + blocks);
    if (w.biases.outputs > 0)
      out.bias = reinterpret_cast<const float*>(w.biases.expert(w.expert).codes.data()) + b.begin;
    const Rows rows = x.part(b.row, b.rows);
    if (rows.f == nullptr)
      matmul(rows.q, weight, {0, blocks}, out, c.isa);
    else
      matmul(FloatRows{rows.f, b.rows, rows.stride}, weight, {0, blocks}, out, c.isa);
  }

  ExpertsStep s_;
  Scratch at_;
  std::vector<int64_t> first_;  // where each expert's pairs begin
  std::vector<Active> active_;
};

}  // namespace

int64_t scratch_bytes(const ExpertsStep& step) { return scratch_of(step).end; }

StepPtr make_route(std::string label, const RouteStep& step) { return std::make_unique<Route>(std::move(label), step); }

StepPtr make_experts(std::string label, const ExpertsStep& step) {
  CHECK(step.group == 0 || kBlockOutputs % step.group == 0);
  return std::make_unique<Experts>(std::move(label), step);
}

}  // namespace onw::cpu
