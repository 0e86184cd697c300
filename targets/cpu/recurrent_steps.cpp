#include "targets/cpu/recurrent_steps.h"

#include <algorithm>

#include "base/checked.h"
#include "targets/cpu/recurrent_pages.h"

namespace onw::cpu {
namespace {

// Rows of a span that must be in a log afterwards: those of the chunk that it begins in, and of the one that it ends
// in. store(row of the span, slot's memory).
template <class Store>
void log_rows(const Span& span, RecurrentPages& pages, Store store) {
  const int64_t begin = span.first_position, end = begin + span.rows, base = chunk_begin(begin),
                last = chunk_begin(end);
  for (int64_t p = begin; p < std::min(end, base + kDeltaChunk); ++p)
    store(p - begin, pages.log() + (p - base) * pages.row_floats());
  if (last == base) return;
  for (int64_t p = std::max(begin, last); p < end; ++p)
    store(p - begin, pages.next_log() + (p - last) * pages.row_floats());
}

class ConvUpdate final : public PlanStep {
 public:
  ConvUpdate(std::string label, ConvStep s) : PlanStep(std::move(label)), s_(std::move(s)), channels_(s_.y.width) {}

  void run(const RunContext& c) override {
    for (const Span& span : c.spans) {
      RecurrentPages& pages = (*span.recurrent)[static_cast<size_t>(s_.state)];
      const int64_t each = std::max<int64_t>(1, kElementsPerTask / channels_);
      const auto rows = [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) row(c, span, pages, i);
      };
      if (span.rows <= each)
        rows(0, span.rows);
      else
        c.pool->parallel_for(ceil_div(span.rows, each), [&](int64_t first, int64_t last, int) {
          rows(first * each, std::min(last * each, span.rows));
        });
      move_on(c, span, pages);
    }
  }

 private:
  static constexpr int64_t kElementsPerTask = 16384;
  static constexpr int64_t kMostTaps = 64;

  const float* input(const RunContext& c, const Span& span, int64_t i) const {
    return s_.x.f32(c) + (span.first_row + i) * s_.x.stride;
  }

  // The input at a position before the step's end.
  const float* at(const RunContext& c, const Span& span, RecurrentPages& pages, int64_t position) const {
    const int64_t base = chunk_begin(span.first_position);
    if (position >= span.first_position) return input(c, span, position - span.first_position);
    if (position >= base) return pages.log() + (position - base) * channels_;
    return pages.edge() + (position - base + s_.kernel - 1) * channels_;
  }

  void row(const RunContext& c, const Span& span, RecurrentPages& pages, int64_t i) const {
    const float* taps[kMostTaps];
    const int64_t position = span.first_position + i;
    for (int64_t j = 0; j < s_.kernel; ++j) taps[j] = at(c, span, pages, position - s_.kernel + 1 + j);
    c.delta->conv({.x = taps,
                   .w = s_.weight.data(),
                   .bias = s_.bias.empty() ? nullptr : s_.bias.data(),
                   .kernel = s_.kernel,
                   .channels = channels_,
                   .begin = 0,
                   .end = channels_,
                   .y = s_.y.f32(c) + (span.first_row + i) * s_.y.stride});
  }

  // The log, and where an edge was passed the inputs before the last one.
  void move_on(const RunContext& c, const Span& span, RecurrentPages& pages) const {
    const int64_t last = chunk_begin(span.first_position + span.rows);
    if (last != chunk_begin(span.first_position))
      for (int64_t j = 0; j < s_.kernel - 1; ++j)
        std::copy_n(at(c, span, pages, last - s_.kernel + 1 + j), channels_, pages.next_edge() + j * channels_);
    log_rows(span, pages, [&](int64_t i, float* to) { std::copy_n(input(c, span, i), channels_, to); });
  }

  ConvStep s_;
  int64_t channels_;
};

// A task is one value head of one sequence, chunk after chunk.
class GatedDelta final : public PlanStep {
 public:
  GatedDelta(std::string label, const DeltaStep& s) : PlanStep(std::move(label)), s_(s) {}

  void run(const RunContext& c) override {
    for (const Span& span : c.spans) {
      RecurrentPages& pages = pages_of(span);
      log_rows(span, pages, [&](int64_t i, float* to) { std::copy_n(row(c, s_.k, span, i), s_.k.width, to); });
    }
    const int64_t heads = c.spans.empty() ? 0 : pages_of(c.spans[0]).state().heads;
    c.pool->parallel_for(static_cast<int64_t>(c.spans.size()) * heads, [&](int64_t first, int64_t last, int) {
      for (int64_t t = first; t < last; ++t) head(c, c.spans[static_cast<size_t>(t / heads)], t % heads);
    });
  }

 private:
  RecurrentPages& pages_of(const Span& span) const { return (*span.recurrent)[static_cast<size_t>(s_.state)]; }

  static float* row(const RunContext& c, const Slot& slot, const Span& span, int64_t i) {
    return slot.f32(c) + (span.first_row + i) * slot.stride;
  }

  void head(const RunContext& c, const Span& span, int64_t h) const {
    RecurrentPages& pages = pages_of(span);
    const StateDecl& state = pages.state();
    const int64_t end = span.first_position + span.rows, size = state.head_dim * state.value_dim;
    const int64_t key_head = key_head_of(h, state.heads, state.key_heads, s_.tiled);
    const float* edge = pages.edge();
    float* log = pages.log();
    for (int64_t p = span.first_position; p < end;) {
      const int64_t base = chunk_begin(p), stop = std::min(end, base + kDeltaChunk);
      DeltaChunk d{.key_dim = state.head_dim,
                   .value_dim = state.value_dim,
                   .first = static_cast<int>(p - base),
                   .last = static_cast<int>(stop - base),
                   .edge = edge + h * size,
                   .u = log + delta_u_at(state) + h * state.value_dim,
                   .c = log + delta_c_at(state) + h,
                   .log_stride = pages.row_floats()};
      if (d.last == kDeltaChunk) d.next_edge = pages.next_edge() + h * size;
      for (int s = 0; s < d.first; ++s) d.k[s] = log + s * d.log_stride + key_head * state.head_dim;
      for (int s = d.first; s < d.last; ++s) point(c, span, h, key_head, base + s, d);
      c.delta->chunk(d);
      p = stop;
      if (d.last == kDeltaChunk) edge = pages.next_edge(), log = pages.next_log();
    }
  }

  // The operands of the row at `position`.
  void point(const RunContext& c, const Span& span, int64_t h, int64_t key_head, int64_t position,
             DeltaChunk& d) const {
    const int64_t i = position - span.first_position, slot = position % kDeltaChunk;
    d.k[slot] = row(c, s_.k, span, i) + key_head * d.key_dim;
    d.q[slot] = row(c, s_.q, span, i) + key_head * d.key_dim;
    d.v[slot] = row(c, s_.v, span, i) + h * d.value_dim;
    d.out[slot] = row(c, s_.y, span, i) + h * d.value_dim;
    d.g[slot] = row(c, s_.g, span, i)[h];
    d.beta[slot] = row(c, s_.beta, span, i)[h];
  }

  DeltaStep s_;
};

}  // namespace

StepPtr make_conv_update(std::string label, ConvStep step) {
  return std::make_unique<ConvUpdate>(std::move(label), std::move(step));
}

StepPtr make_gated_delta(std::string label, const DeltaStep& step) {
  return std::make_unique<GatedDelta>(std::move(label), step);
}

}  // namespace onw::cpu
