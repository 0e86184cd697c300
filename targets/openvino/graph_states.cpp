#include "targets/openvino/graph_states.h"

#include <algorithm>
#include <cmath>

#include "graph/ops.h"
#include "kernels/scalar.h"
#include "passes/decompose_states.h"
#include "passes/delta_scales.h"

namespace onw::openvino {
namespace {

float* floats(const std::shared_ptr<std::byte>& memory) { return reinterpret_cast<float*>(memory.get()); }

bool is_conv(const StateDecl& s) { return s.kind == StateKind::conv; }

int64_t delta_floats(const StateDecl& s) { return s.heads * s.head_dim * s.value_dim; }

float decay(float log) { return log < kLeastExponent ? 0.0f : scalar::exp(log); }

// `by` times the state of one head behind `rows` rows of a log that begins at the edge.
struct Fold {
  const StateDecl& s;
  bool tiled = false;
  const float* edge = nullptr;
  const float* log = nullptr;
  int64_t rows = 0;
  float by = 1;
  float* to = nullptr;  // may be the edge

  void head(int64_t h) const {
    const int64_t stride = recurrent_form(s).row_floats, size = s.head_dim * s.value_dim;
    const float* k = log + key_head_of(h, s.heads, s.key_heads, tiled) * s.head_dim;
    const float* u = log + delta_u_at(s) + h * s.value_dim;
    const float* c = log + delta_c_at(s) + h;
    const float last = rows > 0 ? c[(rows - 1) * stride] : 0.0f;
    float since[kDeltaChunk];
    for (int64_t j = 0; j < rows; ++j) since[j] = by * decay(last - c[j * stride]);
    const float kept = by * decay(last);
    for (int64_t i = 0; i < s.head_dim; ++i) {
      const float* from = edge + h * size + i * s.value_dim;
      float* row = to + h * size + i * s.value_dim;
      for (int64_t x = 0; x < s.value_dim; ++x) row[x] = kept * from[x];
      for (int64_t j = 0; j < rows; ++j) {
        const float weight = since[j] * k[j * stride + i];
        const float* uj = u + j * stride;
        for (int64_t x = 0; x < s.value_dim; ++x) row[x] += weight * uj[x];
      }
    }
  }

  void run(ThreadPool& pool) const {
    pool.parallel_for(s.heads, [&](int64_t first, int64_t last, int) {
      for (int64_t h = first; h < last; ++h) head(h);
    });
  }
};

}  // namespace

Result<std::unique_ptr<GraphStates>> GraphStates::create(const Program& program, std::span<const int64_t> block_rows,
                                                         const HostMemory& memory, ThreadPool& pool) {
  auto all = std::unique_ptr<GraphStates>(new GraphStates(memory, pool));
  all->most_rows_ = block_rows.back();
  all->most_recurrent_ = 1;
  for (const int64_t rows : block_rows)
    if (rows <= kRecurrentRows) all->most_recurrent_ = std::max(all->most_recurrent_, rows);
  auto used = memory.allocate(all->most_rows_ * 4);
  RETURN_IF_ERROR(used);
  all->used_ = std::move(*used);
  for (const StateDecl& s : program.states) {
    if (!is_recurrent(s)) continue;
    State& state = all->states_.emplace_back();
    state.decl = s;
    if (is_conv(s)) continue;
    for (const Node& n : program.function("body")->nodes)
      if (n.op == Op::gated_delta && n.attributes.text("state") == s.name)
        state.tiled = n.attributes.text("heads", "grouped") == "tiled";
    for (const auto& [part, width] :
         {std::pair("k", s.key_heads * s.head_dim), {"u", s.heads * s.value_dim}, {"g", s.heads}}) {
      auto rows = memory.allocate(all->most_rows_ * width * 4);
      RETURN_IF_ERROR(rows);
      state.rows[part] = std::move(*rows);
    }
  }
  return all;
}

int64_t GraphStates::left_floats(const State& s) const {
  return is_conv(s.decl) ? (s.decl.kernel - 1 + most_rows_) * s.decl.heads : most_recurrent_ * delta_floats(s.decl);
}

int64_t GraphStates::sequence_bytes() const {
  int64_t bytes = 0;
  for (const State& s : states_) bytes += 2 * left_floats(s) * 4;
  return bytes;
}

// With one more memory of each state: what a block reads that the one before it in the step has left.
int64_t GraphStates::work_bytes() const {
  int64_t bytes = 0;
  for (const State& s : states_)
    bytes += left_floats(s) * 4 + (is_conv(s.decl) ? 0 : most_rows_ * recurrent_form(s.decl).row_floats * 4);
  return bytes;
}

// Memory that nobody holds any more, or new one.
Result<std::shared_ptr<std::byte>> GraphStates::take(State& s) const {
  for (const auto& memory : s.spare)
    if (memory.use_count() == 1) return memory;
  auto fresh = memory_.allocate(left_floats(s) * 4);
  RETURN_IF_ERROR(fresh);
  s.spare.push_back(*fresh);
  return std::move(*fresh);
}

// The state behind `length` tokens, from the edge and the rows since.
Result<HeldState> GraphStates::from_pages(State& s, cpu::RecurrentPages& pages, int64_t length) const {
  auto memory = take(s);
  RETURN_IF_ERROR(memory);
  float* to = floats(*memory);
  const int64_t since = length - chunk_begin(length);
  const bool own = in_own_chunk(length);
  if (!is_conv(s.decl)) {
    Fold{.s = s.decl,
         .tiled = s.tiled,
         .edge = own ? pages.edge() : pages.next_edge(),
         .log = own ? pages.log() : pages.next_log(),
         .rows = since,
         .by = kDeltaStateScale,
         .to = to}
        .run(pool_);
    return HeldState{*memory, memory->get()};
  }
  const int64_t reach = s.decl.kernel - 1, channels = s.decl.heads;
  for (int64_t j = 0; j < reach; ++j) {
    const int64_t at = since - reach + j;  // from the edge on
    std::copy_n(at < 0 ? pages.edge() + (at + reach) * channels : pages.log() + at * channels, channels,
                to + j * channels);
  }
  return HeldState{*memory, memory->get()};
}

// The state behind `length` tokens: what the last block left in `memory`, or what the pages say.
Result<HeldState> GraphStates::behind(State& s, cpu::RecurrentPages& pages, const LeftStates& left,
                                      const std::shared_ptr<std::byte>& memory, int64_t length) const {
  const int64_t rows = length - left.first;  // of the last block
  const bool known = left.first >= 0 && rows > 0 && rows <= left.kept;
  // Blocks of single rows leave a state each, which is good up to the next edge; others one.
  const bool each = left.block_rows <= kRecurrentRows && chunk_begin(left.first) == chunk_begin(length);
  const bool last = left.block_rows > kRecurrentRows && rows == left.rows;
  if (!known || (!is_conv(s.decl) && !each && !last)) return from_pages(s, pages, length);
  const int64_t at = is_conv(s.decl) ? rows * s.decl.heads : each ? (rows - 1) * delta_floats(s.decl) : 0;
  return HeldState{memory, memory.get() + at * 4};
}

// What the sequence's next rows read.
Result<void> GraphStates::make_now(ChunkSequence& sequence) {
  HeldStates& held = sequence.held();
  if (held.length == step_first_) return {};
  std::vector<HeldState> now;
  for (size_t i = 0; i < states_.size(); ++i) {
    const auto memory = held.left.memory.empty() ? nullptr : held.left.memory[i];
    auto made = behind(states_[i], sequence.recurrent()[i], held.left, memory, step_first_);
    RETURN_IF_ERROR(made);
    now.push_back(std::move(*made));
  }
  held.now = std::move(now);
  held.length = step_first_;
  held.left = {};
  return {};
}

Result<void> GraphStates::begin(ChunkSequence& sequence, int64_t rows) {
  step_first_ = sequence.length(), step_rows_ = rows;
  HeldStates& held = sequence.held();
  held.pending = {};
  RETURN_IF_ERROR(make_now(sequence));
  held.pending.memory.resize(states_.size());
  return {};
}

const std::vector<size_t>& GraphStates::states_of(const Graph& graph) {
  const auto [found, is_new] = of_graph_.try_emplace(&graph);
  for (size_t i = 0; is_new && i < states_.size(); ++i)
    if (graph.has_port(states_[i].decl.name + ".before")) found->second.push_back(i);
  return found->second;
}

// All segments are cut into the same blocks, so that `first_`, `rows_` and `block_rows_` still say what the segment's
// block before was where this one is not its first.
Result<void> GraphStates::begin_block(ChunkSequence& sequence, int64_t offset, int64_t rows, int64_t block_rows,
                                      Graph& graph) {
  const LeftStates before{.first = first_, .rows = rows_, .block_rows = block_rows_, .kept = rows_};
  first_ = step_first_ + offset, rows_ = rows, block_rows_ = block_rows;
  HeldStates& held = sequence.held();
  LeftStates& pending = held.pending;
  pending.first = first_, pending.rows = rows, pending.block_rows = block_rows, pending.kept = rows;
  for (int64_t r = 0; r < block_rows; ++r) floats(used_)[r] = r < rows ? 1.0f : 0.0f;
  std::map<std::string, std::byte*, std::less<>> places{{"rows_used", used_.get()}};
  for (const size_t i : states_of(graph)) {
    State& s = states_[i];
    std::shared_ptr<std::byte>& left = pending.memory[i];
    auto from = offset == 0 ? Result<HeldState>(held.now[i]) : behind(s, sequence.recurrent()[i], before, left, first_);
    RETURN_IF_ERROR(from);
    auto to = take(s);
    RETURN_IF_ERROR(to);
    places[s.decl.name + ".before"] = from->at;
    places[s.decl.name + (is_conv(s.decl) ? ".rows" : ".after")] = to->get();
    for (const auto& [part, memory] : s.rows) places[s.decl.name + "." + part] = memory.get();
    left = std::move(*to);
  }
  graph.place_states(places);
  return {};
}

void GraphStates::finish_block(ChunkSequence& sequence, const Graph& graph) {
  const LeftStates& left = sequence.held().pending;
  for (const size_t i : states_of(graph)) {
    const State& s = states_[i];
    if (is_conv(s.decl))
      keep_conv(s, floats(left.memory[i]), sequence.recurrent()[i]);
    else
      keep_delta(s, floats(left.memory[i]), sequence.recurrent()[i]);
  }
}

// `all`: kernel - 1 rows before the first one, and the rows.
void GraphStates::keep_conv(const State& s, const float* all, cpu::RecurrentPages& pages) const {
  const int64_t channels = s.decl.heads, reach = s.decl.kernel - 1, base = chunk_begin(step_first_),
                last = chunk_begin(step_first_ + step_rows_);
  const auto row = [&](int64_t position) { return all + (position - first_ + reach) * channels; };
  if (last != base && first_ <= last && last <= first_ + rows_)
    std::copy_n(row(last - reach), reach * channels, pages.next_edge());
  for (int64_t p = first_; p < first_ + rows_; ++p)
    if (p < base + kDeltaChunk || p >= last)
      std::copy_n(
          row(p), channels,
          p < base + kDeltaChunk ? pages.log() + (p - base) * channels : pages.next_log() + (p - last) * channels);
}

void GraphStates::log_row(const State& s, int64_t i, const float* before, float* to) const {
  const int64_t keys = delta_u_at(s.decl), values = s.decl.heads * s.decl.value_dim;
  std::copy_n(floats(s.rows.at("k")) + i * keys, keys, to);
  const float* u = floats(s.rows.at("u")) + i * values;
  for (int64_t x = 0; x < values; ++x) to[keys + x] = u[x] / kDeltaStateScale;
  const float* g = floats(s.rows.at("g")) + i * s.decl.heads;
  for (int64_t h = 0; h < s.decl.heads; ++h)
    to[delta_c_at(s.decl) + h] =
        (before == nullptr ? 0.0f : before[delta_c_at(s.decl) + h]) + std::max(g[h], kLeastLogDecay);
}

// Chunk after chunk, whose rows go to the log of the first, or to the next one. Where the block ends at an edge and
// leaves one state, that is the edge's.
void GraphStates::keep_delta(const State& s, const float* after, cpu::RecurrentPages& pages) const {
  const int64_t end = first_ + rows_, stride = pages.row_floats();
  const bool ends_at_edge = block_rows_ > kRecurrentRows && chunk_begin(end) == end;
  for (int64_t p = first_; p < end;) {
    const int64_t base = chunk_begin(p), stop = std::min(end, base + kDeltaChunk);
    const bool own = in_own_chunk(base);
    float* log = own ? pages.log() : pages.next_log();
    for (; p < stop; ++p)
      log_row(s, p - first_, p == base ? nullptr : log + (p - base - 1) * stride, log + (p - base) * stride);
    if (stop - base < kDeltaChunk || ends_at_edge) continue;
    Fold{.s = s.decl,
         .tiled = s.tiled,
         .edge = own ? pages.edge() : pages.next_edge(),
         .log = log,
         .rows = kDeltaChunk,
         .to = pages.next_edge()}
        .run(pool_);
  }
  if (!ends_at_edge) return;
  float* edge = pages.next_edge();
  for (int64_t i = 0; i < delta_floats(s.decl); ++i) edge[i] = after[i] / kDeltaStateScale;
}

}  // namespace onw::openvino
