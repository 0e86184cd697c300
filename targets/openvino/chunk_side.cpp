#include <algorithm>
#include <list>

#include "graph/ops.h"
#include "targets/openvino/attention_requests.h"
#include "targets/openvino/attention_shapes.h"
#include "targets/openvino/chunk_masks.h"
#include "targets/openvino/chunk_merge.h"
#include "targets/openvino/kv_chunks.h"
#include "targets/openvino/kv_side.h"
#include "targets/openvino/read_vector.h"

namespace onw::openvino {
namespace {

// One attention of the function, or one writing of K and V.
struct ChunkStep {
  bool writes = false;
  size_t state = 0;
  cpu::Slot k, v, q, y;
  AttentionShape shape;  // its rows and length are set when it runs
  int64_t window = 0, ring = 0;
  std::vector<float> sinks;
};

class ChunkSide final : public KvSide {
 public:
  ChunkSide(const Program& program, const KvSideOptions& options, const ChunkSideOptions& chunks)
      : options_(options),
        chunks_(chunks),
        masks_(chunks.memory),
        requests_(
            chunks.runtime, [this](const AttentionShape& shape) { return compile(shape); }, chunks.memory,
            chunks.most_requests) {
    form_ = std::make_shared<const ChunkForm>(openvino::chunk_form(program, {.states = {},
                                                                             .kv = options.kv,
                                                                             .max_context = options.max_context,
                                                                             .base = chunks.base,
                                                                             .max_step_rows = options.max_step_rows,
                                                                             .memory = chunks.memory}));
  }

  Result<void> plan(const Program& program, const CutFunction& cut, const BufferPlan& buffers,
                    const WeightSet& weights) {
    const auto slot = [&](const std::string& name) { return buffers.slots.at(name); };
    for (const auto& between : cut.host) {
      steps_.emplace_back();
      for (const HostStep& step : between) {
        if (!is_of_cache(step)) continue;
        const Node& n = step.node;
        ChunkStep& s = steps_.back().emplace_back();
        const int state = program.state(n.attributes.text("state"));
        s.state = static_cast<size_t>(program.place(state));
        const StateDecl& decl = program.states[static_cast<size_t>(state)];
        if (n.op == Op::kv_write) {
          s.writes = true;
          s.k = slot(step.operands[0]);
          s.v = slot(step.operands[1]);
          continue;
        }
        if (n.attributes.integer("bidirectional") != 0)
          return error(Code::unsupported, "{}: bidirectional attention over a cache", n.label);
        s.q = slot(step.operands[0]);
        s.y = slot(step.result);
        s.window = n.attributes.integer("window");
        s.ring = form_->ring(decl);
        s.shape = attention_shape(n, decl, options_.kv);
        if (step.operands.size() < 2) continue;
        auto sinks = read_vector(weights, step.operands[1]);
        RETURN_IF_ERROR(sinks);
        s.sinks = std::move(*sinks);
      }
    }
    RETURN_IF_ERROR(compile_all(program, cut));
    auto spare = chunks_.memory.allocate(widest_query() * options_.max_rows * 4);
    RETURN_IF_ERROR(spare);
    spare_ = std::move(*spare);
    return {};
  }

  std::unique_ptr<Sequence> new_sequence() override { return std::make_unique<ChunkSequence>(form_); }
  Result<void> prepare(Sequence& s, int64_t rows) override { return chunk_sequence(s).prepare(rows); }
  void extend(Sequence& s, int64_t rows) override { chunk_sequence(s).extend(rows); }

  Result<void> begin(const Step& step, std::span<const Row> rows) override {
    spans_.clear();
    recurrent_spans_.clear();
    for (size_t r = 0; r < rows.size(); ++r) {
      const bool another = r == 0 || rows[r - 1].sequence != rows[r].sequence;
      ChunkSequence& sequence = chunk_sequence(*step.sequences[static_cast<size_t>(rows[r].sequence)]);
      if (another || spans_.back().rows.rows == chunks_.block_rows.back())  // a graph attends for so many
        spans_.push_back(
            {{.number = spans_.size(), .row = static_cast<int64_t>(r), .first = rows[r].index}, &sequence});
      if (another)
        recurrent_spans_.push_back({.first_row = static_cast<int64_t>(r),
                                    .first_position = rows[r].index,
                                    .recurrent = &sequence.recurrent()});
      ++spans_.back().rows.rows;
      ++recurrent_spans_.back().rows;
    }
    masks_.begin();
    return {};
  }

  Result<void> run(size_t segment, std::byte* arena) override {
    for (const ChunkStep& s : steps_[segment])
      for (const Span& span : spans_) {
        if (s.writes)
          write(s, span, arena);
        else
          RETURN_IF_ERROR(attend(s, span, arena));
      }
    return {};
  }

  std::span<const cpu::Span> spans() const override { return recurrent_spans_; }
  double device_seconds() const override { return requests_.seconds(); }
  std::shared_ptr<const ChunkForm> chunk_form() const override { return form_; }

  // A ring is there from the first row on, however long the conversation.
  int64_t state_bytes(int64_t tokens) const override {
    int64_t bytes = 0;
    for (const StateDecl& s : form_->recurrent) bytes += cpu::recurrent_bytes(s);
    for (const StateDecl& s : form_->states) {
      if (const int64_t ring = form_->ring(s); ring > 0) {
        bytes += chunk_bytes(s, options_.kv, ring);
        continue;
      }
      for (int64_t i = 0; tokens > 0 && i <= chunk_of(tokens - 1, form_->base).index; ++i)
        bytes += chunk_bytes(s, options_.kv, chunk_at(i, form_->base).length);
    }
    return bytes;
  }

  bool truncates_freely() const override {
    return form_->recurrent.empty() &&
           std::ranges::none_of(form_->states, [](const StateDecl& s) { return s.window > 0; });
  }

 private:
  struct Span {
    RowSpan rows;
    ChunkSequence* sequence = nullptr;
  };

  static ChunkSequence& chunk_sequence(Sequence& s) { return static_cast<ChunkSequence&>(s); }

  static float* at(const cpu::Slot& slot, std::byte* arena, int64_t row) {
    return reinterpret_cast<float*>(arena + slot.offset) + row * slot.stride;
  }

  // ---- Once

  Result<CompiledModel> compile(const AttentionShape& shape) {
    auto lowered = lower_attention(shape, chunks_.formats);
    RETURN_IF_ERROR(lowered);
    const Constants& constants = constants_.emplace_back(std::move(lowered->constants));
    return chunks_.compile(attention_job(shape, lowered->ir), constants);
  }

  Result<void> compile_all(const Program& program, const CutFunction& cut) {
    for (const AttentionShape& shape : attention_shapes(program, cut, *form_, chunks_.block_rows))
      RETURN_IF_ERROR(requests_.compile(shape));
    return {};
  }

  static AttentionShape shape_of(const ChunkStep& s, int64_t rows, int64_t length) {
    AttentionShape shape = s.shape;
    shape.rows = rows;
    shape.length = length;
    return shape;
  }

  int64_t widest_query() const {
    int64_t widest = 0;
    for (const auto& between : steps_)
      for (const ChunkStep& s : between) widest = std::max(widest, s.q.stride);
    return widest;
  }

  // ---- Every step

  void write(const ChunkStep& s, const Span& span, std::byte* arena) const {
    for (int64_t r = 0; r < span.rows.rows; ++r)
      span.sequence->write(s.state, span.rows.first + r, at(s.k, arena, span.rows.row + r),
                           at(s.v, arena, span.rows.row + r));
  }

  // The queries of a span and, behind them, of any rows up to the size of the graph: where the buffer ends before that,
  // in a copy.
  const float* queries(const ChunkStep& s, const RowSpan& span, int64_t block_rows, std::byte* arena) const {
    const float* q = at(s.q, arena, span.row);
    if (span.row + block_rows <= options_.max_rows) return q;
    auto* copy = reinterpret_cast<float*>(spare_.get());
    std::copy_n(q, span.rows * s.q.stride, copy);
    return copy;
  }

  Result<void> attend(const ChunkStep& s, const Span& span, std::byte* arena) {
    const RowSpan& rows = span.rows;
    const int64_t block_rows = *std::ranges::lower_bound(chunks_.block_rows, rows.rows);
    const float* q = queries(s, rows, block_rows, arena);
    merge_.begin(s.shape.heads, rows.rows, s.shape.value_dim);
    if (s.ring > 0) {
      const auto mask = masks_.of_ring(rows, s.ring, s.window, block_rows);
      RETURN_IF_ERROR(mask);
      RETURN_IF_ERROR(
          attend_to({shape_of(s, block_rows, s.ring), &span.sequence->chunk(s.state, 0), q, *mask}, {0, rows.rows}));
    } else {
      const int64_t begin = causal(rows.first, s.window).begin, end = rows.first + rows.rows;
      for (int64_t i = chunk_of(begin, form_->base).index; i <= chunk_of(end - 1, form_->base).index; ++i) {
        const ChunkPlace place = chunk_at(i, form_->base);
        const auto mask = masks_.of_chunk(rows, place, s.window, block_rows);
        RETURN_IF_ERROR(mask);
        RETURN_IF_ERROR(attend_to({shape_of(s, block_rows, place.length), &span.sequence->chunk(s.state, i), q, *mask},
                                  ChunkMasks::seeing(rows, place, s.window)));
      }
    }
    merge_.finish(s.sinks, at(s.y, arena, rows.row), s.y.stride);
    return {};
  }

  Result<void> attend_to(const AttentionRequests::Call& call, SeeingRows rows) {
    const auto parts = requests_.run(call);
    RETURN_IF_ERROR(parts);
    merge_.fold(rows.first, rows.last, call.shape.rows, parts->m.data(), parts->l.data(), parts->o.data());
    return {};
  }

  KvSideOptions options_;
  ChunkSideOptions chunks_;
  std::list<Constants> constants_;  // the graphs may still read them
  std::shared_ptr<const ChunkForm> form_;
  std::vector<std::vector<ChunkStep>> steps_;
  ChunkMasks masks_;
  AttentionRequests requests_;
  std::shared_ptr<std::byte> spare_;
  std::vector<Span> spans_;  // of the rows that run
  std::vector<cpu::Span> recurrent_spans_;
  ChunkMerge merge_;
};

}  // namespace

Result<std::unique_ptr<KvSide>> make_chunk_side(const Program& program, const CutFunction& cut,
                                                const BufferPlan& buffers, const WeightSet& weights,
                                                const KvSideOptions& options, const ChunkSideOptions& chunks) {
  auto side = std::make_unique<ChunkSide>(program, options, chunks);
  RETURN_IF_ERROR(side->plan(program, cut, buffers, weights));
  return side;
}

}  // namespace onw::openvino
