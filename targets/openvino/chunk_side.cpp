#include <algorithm>
#include <map>

#include "graph/ops.h"
#include "kernels/attention/attention.h"
#include "kernels/scalar.h"
#include "targets/openvino/attention_graph.h"
#include "targets/openvino/kv_chunks.h"
#include "targets/openvino/kv_side.h"
#include "targets/openvino/lower.h"
#include "targets/openvino/sinks.h"

namespace onw::openvino {
namespace {

// One attention of the function, or one writing of K and V.
struct ChunkStep {
  bool writes = false;
  size_t state = 0;
  cpu::Slot k, v, q, y;
  AttentionShape shape;  // its rows and length are set when it runs
  int64_t window = 0;
  std::vector<float> sinks;
};

// Chunk results of all rows and heads, folded one after the other: exact, whatever the chunks.
class Merged {
 public:
  void begin(int64_t rows, const ChunkStep& s) {
    value_dim_ = s.shape.value_dim;
    const auto n = static_cast<size_t>(rows * s.shape.heads);
    m_.assign(n, -std::numeric_limits<float>::infinity());
    l_.assign(n, 0);
    o_.assign(n * static_cast<size_t>(value_dim_), 0);
  }

  // [heads, rows] as the graph gives it.
  void fold(std::span<const float> m, std::span<const float> l, std::span<const float> o) {
    const auto width = static_cast<size_t>(value_dim_);
    for (size_t i = 0; i < m_.size(); ++i) {
      const float most = std::max(m_[i], m[i]), a = scalar::exp(m_[i] - most), b = scalar::exp(m[i] - most);
      l_[i] = l_[i] * a + l[i] * b;
      for (size_t e = i * width; e < (i + 1) * width; ++e) o_[e] = o_[e] * a + o[e] * (l[i] * b);
      m_[i] = most;
    }
  }

  // y [rows, heads, value_dim] for the first `rows` of `block`.
  void finish(int64_t rows, int64_t block, const ChunkStep& s, float* y) {
    for (int64_t h = 0; h < s.shape.heads; ++h)
      for (int64_t r = 0; r < rows; ++r) {
        const auto i = static_cast<size_t>(h * block + r);
        float l = l_[i], factor = 1;
        if (!s.sinks.empty()) {
          const float sink = s.sinks[static_cast<size_t>(h)], most = std::max(m_[i], sink);
          factor = scalar::exp(m_[i] - most);
          l = l * factor + scalar::exp(sink - most);
        }
        for (int64_t e = 0; e < value_dim_; ++e)
          y[r * s.y.stride + h * value_dim_ + e] =
              o_[i * static_cast<size_t>(value_dim_) + static_cast<size_t>(e)] * factor / l;
      }
  }

 private:
  int64_t value_dim_ = 0;
  std::vector<float> m_, l_, o_;
};

class ChunkSide final : public KvSide {
 public:
  ChunkSide(const Program& program, const KvSideOptions& options, const ChunkSideOptions& chunks)
      : options_(options), chunks_(chunks), constants_(*Constants::create({})) {
    form_ = std::make_shared<const ChunkForm>(ChunkForm{program.states, options.kv, options.max_context, chunks.base});
  }

  Result<void> plan(const Program& program, const CutFunction& cut, const BufferPlan& buffers,
                    const WeightSet& weights) {
    const auto slot = [&](const std::string& name) { return buffers.slots.at(name); };
    for (const auto& between : cut.host) {
      steps_.emplace_back();
      for (const HostStep& step : between) {
        const Node& n = step.node;
        ChunkStep& s = steps_.back().emplace_back();
        s.state = static_cast<size_t>(program.state(n.attributes.text("state")));
        const StateDecl& decl = program.states[s.state];
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
        s.shape = attention_shape(n, decl, options_.kv);
        if (step.operands.size() < 2) continue;
        auto sinks = read_sinks(weights, step.operands[1]);
        RETURN_IF_ERROR(sinks);
        s.sinks = std::move(*sinks);
      }
    }
    return {};
  }

  std::unique_ptr<Sequence> new_sequence() override { return std::make_unique<ChunkSequence>(form_); }
  Result<void> prepare(Sequence& s, int64_t rows) override { return chunk_sequence(s).prepare(rows); }
  void extend(Sequence& s, int64_t rows) override { chunk_sequence(s).extend(rows); }
  bool mixes_sequences() const override { return false; }

  Result<void> begin(const Step& step, std::span<const Row> rows, int64_t block_rows) override {
    sequence_ = &chunk_sequence(*step.sequences[static_cast<size_t>(rows.front().sequence)]);
    first_ = rows.front().index;
    rows_ = static_cast<int64_t>(rows.size());
    block_rows_ = block_rows;
    masks_.clear();
    return {};
  }

  Result<void> run(size_t segment, std::byte* arena) override {
    for (const ChunkStep& s : steps_[segment]) {
      if (s.writes)
        write(s, arena);
      else
        RETURN_IF_ERROR(attend(s, arena));
    }
    return {};
  }

  int64_t state_bytes(int64_t tokens) const override {
    int64_t bytes = 0;
    if (tokens <= 0) return 0;
    const int64_t last = chunk_of(tokens - 1, form_->base).index;
    for (const StateDecl& s : form_->states)
      for (int64_t i = 0; i <= last; ++i) bytes += chunk_bytes(s, options_.kv, chunk_at(i, form_->base).length);
    return bytes;
  }

  bool truncates_freely() const override { return true; }

 private:
  static ChunkSequence& chunk_sequence(Sequence& s) { return static_cast<ChunkSequence&>(s); }

  static float* at(const cpu::Slot& slot, std::byte* arena) { return reinterpret_cast<float*>(arena + slot.offset); }

  void write(const ChunkStep& s, std::byte* arena) {
    for (int64_t r = 0; r < rows_; ++r)
      sequence_->write(s.state, first_ + r, at(s.k, arena) + r * s.k.stride, at(s.v, arena) + r * s.v.stride);
  }

  // Which positions of a chunk each row sees; rows that only fill the block up see the first. Made once a step.
  const std::vector<float>& mask(const ChunkPlace& place, int64_t window) {
    auto [found, fresh] = masks_.try_emplace({place.index, window});
    std::vector<float>& m = found->second;
    if (!fresh) return m;
    m.assign(static_cast<size_t>(block_rows_ * place.length), kMasked);
    for (int64_t r = 0; r < block_rows_; ++r) {
      Visible seen = causal(first_ + r, window);
      if (r >= rows_) seen = {0, 1};
      const int64_t begin = std::clamp<int64_t>(seen.begin - place.begin, 0, place.length),
                    end = std::clamp<int64_t>(seen.end - place.begin, 0, place.length);
      std::fill(m.begin() + r * place.length + begin, m.begin() + r * place.length + std::max(begin, end), 0.0f);
    }
    return m;
  }

  Result<void> attend(const ChunkStep& s, std::byte* arena) {
    merged_.begin(block_rows_, s);
    const int64_t begin = causal(first_, s.window).begin, end = first_ + rows_;
    for (int64_t i = chunk_of(begin, form_->base).index; i <= chunk_of(end - 1, form_->base).index; ++i)
      RETURN_IF_ERROR(attend_chunk(s, chunk_at(i, form_->base), arena));
    merged_.finish(rows_, block_rows_, s, at(s.y, arena));
    return {};
  }

  Result<void> attend_chunk(const ChunkStep& s, const ChunkPlace& place, std::byte* arena) {
    AttentionShape shape = s.shape;
    shape.rows = block_rows_;
    shape.length = place.length;
    const auto request = request_for(shape);
    RETURN_IF_ERROR(request);
    KvChunk& chunk = sequence_->chunk(s.state, place.index);
    const DType element = options_.kv == KvFormat::int8  ? DType::i8
                          : options_.kv == KvFormat::f16 ? DType::f16
                                                         : DType::f32;
    const auto n = static_cast<size_t>(shape.heads * shape.rows);
    m_.resize(n);
    l_.resize(n);
    o_.resize(n * static_cast<size_t>(shape.value_dim));
    struct Binding {
      const char* name;
      DType dtype;
      Shape shape;
      void* memory;
    };
    std::vector<Binding> bindings = {
        {"q", DType::f32, {shape.rows, shape.heads, shape.head_dim}, at(s.q, arena)},
        {"k", element, {shape.kv_heads, shape.length, shape.head_dim}, chunk.k.data()},
        {"v", element, {shape.kv_heads, shape.value_dim, shape.length}, chunk.v.data()},
        {"mask", DType::f32, {shape.rows, shape.length}, const_cast<float*>(mask(place, s.window).data())},
        {"m", DType::f32, {shape.heads, shape.rows, 1}, m_.data()},
        {"l", DType::f32, {shape.heads, shape.rows, 1}, l_.data()},
        {"o", DType::f32, {shape.heads, shape.rows, shape.value_dim}, o_.data()}};
    if (options_.kv == KvFormat::int8) {
      const Shape scales = {shape.kv_heads, 1, shape.length};
      bindings.push_back({"k_scale", DType::f16, scales, chunk.k_scale.data()});
      bindings.push_back({"v_scale", DType::f16, scales, chunk.v_scale.data()});
    }
    for (const Binding& b : bindings) {
      const auto tensor = chunks_.runtime->tensor(b.dtype, b.shape, b.memory);
      RETURN_IF_ERROR(tensor);
      RETURN_IF_ERROR((*request)->set(b.name, *tensor));
    }
    RETURN_IF_ERROR((*request)->run());
    merged_.fold(m_, l_, o_);
    return {};
  }

  Result<Request*> request_for(const AttentionShape& shape) {
    if (const auto found = requests_.find(shape); found != requests_.end()) return &found->second;
    const auto ir = lower(attention_graph(shape), {}, constants_, "openvino:CPU");
    RETURN_IF_ERROR(ir);
    const std::array<int64_t, 1> bytes = {constants_.bytes()};
    const auto memory = chunks_.runtime->tensor(DType::u8, bytes, constants_.data());
    RETURN_IF_ERROR(memory);
    const auto compiled = chunks_.runtime->compile(ir->xml, *memory, chunks_.device, chunks_.properties);
    RETURN_IF_ERROR(compiled);
    auto request = compiled->request();
    RETURN_IF_ERROR(request);
    return &requests_.emplace(shape, std::move(*request)).first->second;
  }

  KvSideOptions options_;
  ChunkSideOptions chunks_;
  Constants constants_;
  std::shared_ptr<const ChunkForm> form_;
  std::vector<std::vector<ChunkStep>> steps_;
  std::map<AttentionShape, Request> requests_;

  // Of the rows that run.
  ChunkSequence* sequence_ = nullptr;
  int64_t first_ = 0, rows_ = 0, block_rows_ = 0;
  std::map<std::pair<int64_t, int64_t>, std::vector<float>> masks_;  // by chunk and window
  std::vector<float> m_, l_, o_;
  Merged merged_;
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
