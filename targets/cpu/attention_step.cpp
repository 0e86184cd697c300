// Attention and the writing of K and V. A task is one KV head and a tile of tokens of one sequence; where those are
// fewer than the threads, the tasks are also cut by positions, and folded in block order: the same bits either way.
#include <algorithm>

#include "base/checked.h"
#include "targets/cpu/aligned_bytes.h"
#include "targets/cpu/steps.h"

namespace onw::cpu {
namespace {

constexpr int64_t kTileTokens = 16;

}  // namespace

// Buffers that all attention steps of a plan share: they run one after the other.
struct AttentionWork {
  struct Tile {
    const KvPages* pages = nullptr;
    int64_t first = 0;  // into rows: the tile's first; KV head by KV head, the query heads of its tokens
    int64_t tokens = 0;
  };
  std::vector<AttentionRow> rows;
  std::vector<Tile> tiles;
  AlignedBytes scratch;  // per thread
  int64_t scratch_bytes = 0;
  std::vector<float> results;  // of attend_blocks

  void make_room(const AttentionStep& s, const PlanOptions& o) {
    const int64_t group = s.heads / s.kv_heads;
    rows.resize(std::max(rows.size(), static_cast<size_t>(o.max_rows * s.heads)));
    tiles.reserve(static_cast<size_t>(2 * o.max_rows));  // a span has at most one short tile
    const int64_t bytes = round_up(static_cast<int64_t>(attention_scratch_bytes(s.form, kTileTokens * group)), 64);
    if (bytes > scratch_bytes) {
      scratch_bytes = bytes;
      scratch = aligned_bytes(bytes * o.threads);
    }
    if (s.kv_heads >= o.threads) return;
    const int64_t blocks = ceil_div(o.max_context, kPagePositions) + 1;
    results.resize(
        std::max(results.size(), block_results_floats(s.form, group, blocks) * static_cast<size_t>(s.kv_heads)));
  }
};

namespace {

class KvWrite final : public PlanStep {
 public:
  KvWrite(std::string label, const KvWriteStep& s) : PlanStep(std::move(label)), s_(s) {}

  void run(const RunContext& c) override {
    for (const Span& span : c.spans) {
      KvPages& pages = (*span.states)[static_cast<size_t>(s_.state)];
      const auto write = [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const int64_t position = span.first_position + i, r = span.first_row + i;
          for (int64_t h = 0; h < s_.heads; ++h)
            c.attention->kv_write(pages.layout(), pages.page(h, position / kPagePositions), position % kPagePositions,
                                  s_.k.f32(c) + r * s_.k.stride + h * s_.head_dim,
                                  s_.v.f32(c) + r * s_.v.stride + h * s_.head_dim);
        }
      };
      if (span.rows < 8)
        write(0, span.rows);
      else
        c.pool->parallel_for(ceil_div(span.rows, 8),
                             [&](int64_t a, int64_t b, int) { write(a * 8, std::min(b * 8, span.rows)); });
    }
  }

 private:
  KvWriteStep s_;
};

class Attention final : public PlanStep {
 public:
  Attention(std::string label, const AttentionStep& s, std::shared_ptr<AttentionWork> work)
      : PlanStep(std::move(label)), s_(s), group_(s.heads / s.kv_heads), work_(std::move(work)) {}

  void run(const RunContext& c) override {
    lay_out(c);
    const int64_t tasks = static_cast<int64_t>(work_->tiles.size()) * s_.kv_heads;
    const bool split =
        tasks < c.pool->threads() && !work_->results.empty() && work_->tiles.size() == 1 && work_->tiles[0].tokens == 1;
    if (split) return by_positions(c);
    // Long tiles last longest: heads innermost spreads them evenly over the threads.
    c.pool->parallel_for(tasks, [&](int64_t first, int64_t last, int thread) {
      for (int64_t t = first; t < last; ++t) {
        const AttentionTask task = task_of(work_->tiles[static_cast<size_t>(t / s_.kv_heads)], t % s_.kv_heads);
        c.attention->attend(task, work_->scratch.get() + thread * work_->scratch_bytes);
      }
    });
  }

 private:
  using Tile = AttentionWork::Tile;

  // Rows for the kernels: for every tile, KV head by KV head, the query heads of its tokens.
  void lay_out(const RunContext& c) {
    work_->tiles.clear();
    int64_t at = 0;
    for (const Span& span : c.spans) {
      for (int64_t i = 0; i < span.rows; i += kTileTokens) {
        const int64_t tokens = std::min(kTileTokens, span.rows - i);
        work_->tiles.push_back({&(*span.states)[static_cast<size_t>(s_.state)], at, tokens});
        for (int64_t h = 0; h < s_.heads; ++h) {
          for (int64_t t = 0; t < tokens; ++t) {
            const int64_t r = span.first_row + i + t;
            const Visible seen = causal(span.first_position + i + t, s_.window);
            AttentionRow& row = work_->rows[static_cast<size_t>(at++)];
            row = {s_.q.f32(c) + r * s_.q.stride + h * s_.form.head_dim,
                   s_.y.f32(c) + r * s_.y.stride + h * s_.form.head_dim, seen.begin, seen.end};
            if (!s_.sinks.empty()) row.sink = s_.sinks[static_cast<size_t>(h)];
          }
        }
      }
    }
  }

  AttentionTask task_of(const Tile& tile, int64_t kv_head) const {
    const auto count = static_cast<size_t>(tile.tokens * group_);
    return {
        s_.form,
        std::span(work_->rows).subspan(static_cast<size_t>(tile.first) + static_cast<size_t>(kv_head) * count, count),
        tile.pages->blocks(kv_head)};
  }

  // One token, fewer KV heads than threads.
  void by_positions(const RunContext& c) {
    const AttentionTask first = task_of(work_->tiles[0], 0);
    const PageRange all = visible_blocks(first.rows);
    const int64_t blocks = all.end - all.begin, pieces = std::min<int64_t>(blocks, 2 * c.pool->threads());
    const size_t floats = block_results_floats(s_.form, group_, blocks);
    c.pool->parallel_for(s_.kv_heads * pieces, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t head = t / pieces, piece = t % pieces;
        const PageRange range{all.begin + blocks * piece / pieces, all.begin + blocks * (piece + 1) / pieces};
        c.attention->attend_blocks(task_of(work_->tiles[0], head), all, range,
                                   work_->results.data() + static_cast<size_t>(head) * floats,
                                   work_->scratch.get() + thread * work_->scratch_bytes);
      }
    });
    for (int64_t head = 0; head < s_.kv_heads; ++head)
      c.attention->fold_blocks(task_of(work_->tiles[0], head), all,
                               work_->results.data() + static_cast<size_t>(head) * floats, work_->scratch.get());
  }

  AttentionStep s_;
  int64_t group_;
  std::shared_ptr<AttentionWork> work_;
};

}  // namespace

StepPtr make_kv_write(std::string label, const KvWriteStep& step) {
  return std::make_unique<KvWrite>(std::move(label), step);
}

StepPtr make_attention(std::string label, const AttentionStep& step, const PlanOptions& options,
                       std::shared_ptr<AttentionWork>& work) {
  if (work == nullptr) work = std::make_shared<AttentionWork>();
  work->make_room(step, options);
  return std::make_unique<Attention>(std::move(label), step, work);
}

}  // namespace onw::cpu
