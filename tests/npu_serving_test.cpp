// Whole models as an NPU would run them: segments, attention over chunks of the cache, what the host does between, all
// with the NPU's arithmetic on the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "graph/ops.h"
#include "kernels/attention/attention.h"
#include "kernels/scalar.h"
#include "passes/cut.h"
#include "passes/decompose.h"
#include "passes/legalize_npu.h"
#include "passes/quantise.h"
#include "targets/openvino/attention_graph.h"
#include "targets/recurrent_state.h"
#include "targets/reference/body_inputs.h"
#include "targets/reference/interpreter.h"
#include "targets/reference/kv_cache.h"
#include "targets/reference/reference.h"
#include "tests/logits_kl.h"
#include "tests/random_model.h"
#include "tests/run_ids.h"

namespace onw::testing {
namespace {

using reference::Inputs;
using reference::Tensor;

struct Form {
  KvFormat kv = KvFormat::int8;
  bool legal = true;  // legalize_npu's rewrites
  int64_t rows = 4, chunk = 8;
  bool fused = false;  // attention inside one graph, over chunks of 8, 8 and 16 positions
  bool npu = true;     // else FP32
};

const std::vector<int64_t> kFusedChunks = {8, 8, 16};

// Keys or values of one state: [heads, positions, width] in numbers, or in codes with a scale each.
struct Kept {
  std::vector<std::vector<float>> values;  // by position
  std::vector<std::vector<float>> scales;
};

class NpuModel {
 public:
  NpuModel(const RandomModel& m, Form form) : m_(m), form_(form) {
    cut_ = cut_for_fixed_rows(*m.program.function("body")).value();
    for (const Function& f : cut_.segments) segments_.push_back(lowered(f));
    const DecomposeOptions whole{
        .rows = form.rows, .chunks = [](const StateDecl&) { return kFusedChunks; }, .kv = form.kv};
    if (form.fused) fused_ = legal(decompose(m.program, *m.program.function("body"), whole).value());
    head_ = lowered(*m.program.function("head"));
  }

  // [tokens, vocabulary], in blocks of form.rows, which must divide their number.
  std::vector<float> logits(std::span<const int32_t> ids) {
    std::vector<float> all;
    for (first_ = 0; first_ < static_cast<int64_t>(ids.size()); first_ += form_.rows) {
      std::vector<Row> rows;
      for (int64_t i = first_; i < first_ + form_.rows; ++i)
        rows.push_back(text_row(0, i, ids[static_cast<size_t>(i)], true));
      values_ = reference::body_inputs(m_.program, m_.weights, rows).value();
      states_in();
      if (form_.fused) run_fused();
      for (size_t s = 0; s < segments_.size() && !form_.fused; ++s) {
        for (auto& [name, value] : run(segments_[s], values_)) values_[name] = value;
        if (s < cut_.host.size())
          for (const HostStep& step : cut_.host[s]) host(step);
      }
      states_out();
      const Tensor y = run(head_, values_).at("logits");
      all.insert(all.end(), y.f.begin(), y.f.end());
    }
    return all;
  }

 private:
  Function legal(Function f) const { return form_.legal ? legalize_npu(f).value() : f; }
  Function lowered(const Function& f) const { return legal(decompose(m_.program, f, {.rows = form_.rows}).value()); }

  Inputs run(const Function& f, const Inputs& from) const {
    Inputs inputs;
    for (const Node& n : f.nodes)
      if (n.op == Op::input) inputs[n.label] = from.at(n.label);
    return reference::run_function(f, std::move(inputs),
                                   {.program = m_.program, .weights = m_.weights, .rows = form_.rows, .npu = form_.npu},
                                   CancelToken(), false)
        .value();
  }

  // Convolution and delta states: zeros at first, then what the block before left.
  void states_in() {
    values_["rows_used"] = zeros(DType::f32, {form_.rows, 1});
    std::ranges::fill(values_["rows_used"].f, 1.0f);
    for (const StateDecl& s : m_.program.states) {
      if (!is_recurrent(s)) continue;
      const Shape shape =
          s.kind == StateKind::conv ? Shape{s.kernel - 1, s.heads} : Shape{s.heads, s.head_dim, s.value_dim};
      values_[s.name + ".before"] = states_.try_emplace(s.name, zeros(DType::f32, shape)).first->second;
    }
  }
  void states_out() {
    for (auto& [name, state] : states_) {
      const auto conv = values_.find(name + ".rows");
      const Tensor& all = conv != values_.end() ? conv->second : values_.at(name + ".after");
      std::copy(all.f.end() - static_cast<std::ptrdiff_t>(state.f.size()), all.f.end(), state.f.begin());
    }
  }

  // One graph for the body; what it writes goes into the cache behind it.
  void run_fused() {
    for (const StateDecl& s : m_.program.states) {
      int64_t begin = 0;
      for (size_t i = 0; i < kFusedChunks.size(); begin += kFusedChunks[i++]) {
        const auto name = [&](const char* part) { return fmt::format("{}.{}.{}", s.name, part, i); };
        const int64_t length = kFusedChunks[i];
        values_[name("k")] = zeros(element(), {s.heads, length, s.head_dim});
        values_[name("v")] = zeros(element(), {s.heads, s.value_dim, length});
        values_[name("k_scale")] = values_[name("v_scale")] = zeros(DType::f16, {s.heads, 1, length});
        load(kept_[s.name + ".k"], begin, false, values_[name("k")], values_[name("k_scale")]);
        load(kept_[s.name + ".v"], begin, true, values_[name("v")], values_[name("v_scale")]);
      }
      Tensor& mask = values_[fmt::format("window{}.mask", s.window)] =
          zeros(DType::f32, {form_.rows, begin + form_.rows});
      for (int64_t r = 0; r < form_.rows; ++r) {
        const Visible seen = causal(first_ + r, s.window);
        for (int64_t c = 0; c < begin + form_.rows; ++c) {
          const int64_t position = c < begin ? c : first_ + c - begin;
          const bool there = c >= begin || c < first_;
          if (!there || position < seen.begin || position >= seen.end)
            mask.row(r)[static_cast<size_t>(c)] = openvino::kMasked;
        }
      }
    }
    for (auto& [name, value] : run(fused_, values_)) values_[name] = value;
    for (const StateDecl& s : m_.program.states) {
      keep(values_.at(s.name + ".k_new"), kept_[s.name + ".k"]);
      keep(values_.at(s.name + ".v_new"), kept_[s.name + ".v"]);
    }
  }

  static Tensor zeros(DType dtype, Shape shape) { return reference::make_tensor({dtype, std::move(shape), 0}, 0); }
  DType element() const {
    return form_.kv == KvFormat::int8 ? DType::i8 : form_.kv == KvFormat::f16 ? DType::f16 : DType::f32;
  }

  void host(const HostStep& step) {
    const auto state = std::string(step.node.attributes.text("state"));
    if (step.node.op == Op::kv_write) {
      keep(values_.at(step.operands[0]), kept_[state + ".k"]);
      keep(values_.at(step.operands[1]), kept_[state + ".v"]);
    } else {
      values_[step.result] = attend(step, state);
    }
  }

  void keep(const Tensor& x, Kept& to) const {
    const int64_t heads = x.type.shape[1], width = x.type.shape[2];
    for (int64_t r = 0; r < form_.rows; ++r) {
      const std::span<const float> row = x.row(r);
      std::vector<float>& values = to.values.emplace_back(row.begin(), row.end());
      std::vector<float>& scales = to.scales.emplace_back();
      if (form_.kv == KvFormat::f16)
        for (float& v : values) v = half_to_float(float_to_half(v));
      if (form_.kv != KvFormat::int8) continue;
      std::vector<int8_t> codes(static_cast<size_t>(width));
      for (int64_t h = 0; h < heads; ++h) {
        const auto head = row.subspan(static_cast<size_t>(h * width), static_cast<size_t>(width));
        scales.push_back(half_to_float(scalar::quantise_kv(head, codes.data())));
        std::ranges::copy(codes, values.begin() + h * width);
      }
    }
  }

  // A chunk's K [heads, length, width] or V [heads, width, length], and its scales [heads, 1, length].
  static void load(const Kept& kept, int64_t begin, bool transposed, Tensor& values, Tensor& scales) {
    const int64_t heads = values.type.shape[0], width = values.type.shape[transposed ? 1 : 2],
                  length = values.type.shape[transposed ? 2 : 1];
    for (int64_t p = 0; p < length && begin + p < static_cast<int64_t>(kept.values.size()); ++p)
      for (int64_t h = 0; h < heads; ++h) {
        const auto at = static_cast<size_t>(begin + p);
        if (!kept.scales[at].empty())
          scales.f[static_cast<size_t>(h * length + p)] = kept.scales[at][static_cast<size_t>(h)];
        for (int64_t e = 0; e < width; ++e)
          values.f[static_cast<size_t>(transposed ? (h * width + e) * length + p : (h * length + p) * width + e)] =
              kept.values[at][static_cast<size_t>(h * width + e)];
      }
  }

  Inputs chunk_inputs(const HostStep& step, const std::string& state, const openvino::AttentionShape& a,
                      int64_t begin) const {
    Inputs in{{"q", values_.at(step.operands[0])},
              {"k", zeros(element(), {a.kv_heads, a.length, a.head_dim})},
              {"v", zeros(element(), {a.kv_heads, a.value_dim, a.length})},
              {"k_scale", zeros(DType::f16, {a.kv_heads, 1, a.length})},
              {"v_scale", zeros(DType::f16, {a.kv_heads, 1, a.length})},
              {"mask", zeros(DType::f32, {a.rows, a.length})}};
    load(kept_.at(state + ".k"), begin, false, in["k"], in["k_scale"]);
    load(kept_.at(state + ".v"), begin, true, in["v"], in["v_scale"]);
    for (int64_t r = 0; r < a.rows; ++r) {
      const Visible seen = causal(first_ + r, step.node.attributes.integer("window"));
      for (int64_t p = 0; p < a.length; ++p)
        if (begin + p < seen.begin || begin + p >= seen.end)
          in["mask"].row(r)[static_cast<size_t>(p)] = openvino::kMasked;
    }
    return in;
  }

  // Chunks merged by the host in FP32.
  Tensor attend(const HostStep& step, const std::string& state) {
    const StateDecl& decl = m_.program.states[static_cast<size_t>(m_.program.state(state))];
    openvino::AttentionShape a = openvino::attention_shape(step.node, decl, form_.kv);
    a.rows = form_.rows, a.length = form_.chunk;
    auto [found, fresh] = attentions_.try_emplace(a);
    if (fresh) found->second = legal(openvino::attention_graph(a));
    const Function& graph = found->second;
    const auto pairs = static_cast<size_t>(a.heads * a.rows), width = static_cast<size_t>(a.value_dim);
    std::vector<float> m(pairs, -INFINITY), l(pairs), o(pairs * width);
    for (int64_t begin = 0; begin < first_ + a.rows; begin += a.length) {
      const Inputs out = run(graph, chunk_inputs(step, state, a, begin));
      for (size_t i = 0; i < pairs; ++i) {
        const float most = std::max(m[i], out.at("m").f[i]), old = std::exp(m[i] - most),
                    fresh = std::exp(out.at("m").f[i] - most) * out.at("l").f[i];
        m[i] = most;
        l[i] = l[i] * old + fresh;
        for (size_t e = i * width; e < (i + 1) * width; ++e) o[e] = o[e] * old + out.at("o").f[e] * fresh;
      }
    }
    Tensor y = reference::make_tensor({DType::f32, {a.rows, a.heads, a.value_dim}, 0}, 0);
    for (size_t i = 0; i < pairs; ++i) {
      const size_t head = i / static_cast<size_t>(a.rows), row = i % static_cast<size_t>(a.rows);
      for (size_t e = 0; e < width; ++e)
        y.f[(row * static_cast<size_t>(a.heads) + head) * width + e] = o[i * width + e] / l[i];
    }
    return y;
  }

  const RandomModel& m_;
  Form form_;
  CutFunction cut_;
  std::vector<Function> segments_;
  std::map<openvino::AttentionShape, Function> attentions_;
  Function head_, fused_;
  Inputs values_;
  std::map<std::string, Kept, std::less<>> kept_;
  std::map<std::string, Tensor> states_;  // of convolutions and the delta rule
  int64_t first_ = 0;
};

RandomModel model(std::string_view family, int64_t window = 0) {
  nlohmann::json config = tiny_config(family, 320);
  if (family != "gemma4") config["num_hidden_layers"] = 2;
  if (window > 0) config.update({{"sliding_window", window}, {"sliding_window_pattern", 2}});
  return random_model(config, [](const WeightDecl&) { return WeightFormat::q4g128; });
}

std::vector<int32_t> some_ids(int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((i * 37 + 11) % 101));
  return ids;
}

// KL against the reference in FP32, its cache too. Infinite where a logit is no number.
double loss(const RandomModel& m, Form form, int64_t tokens) {
  const auto ids = some_ids(tokens);
  auto judge = make_reference(set_kv_format(m.program, "f32"), m.weights, {.threads = 2});
  const auto exact = logits_in_segments(**judge, ids, std::vector<int64_t>{100}).value();
  const auto npu = NpuModel(m, form).logits(ids);
  const bool finite = std::ranges::all_of(npu, [](float x) { return std::isfinite(x); });
  return finite ? mean_kl(exact, npu, m.program.vocabulary) : INFINITY;
}

const std::vector<std::pair<const char*, int64_t>> kFamilies = {
    {"llama", 0},   {"qwen2", 0},   {"qwen3", 0}, {"granite", 0}, {"granitemoehybrid", 0},
    {"gemma3", 20}, {"gemma4", 20}, {"lfm2", 0},  {"qwen3_5", 0}};

TEST(NpuServing, legalised_models_of_every_family_stay_near_FP32) {
  for (const auto& [family, window] : kFamilies) {
    const RandomModel m = model(family, window);
    EXPECT_LE(loss(m, {.kv = KvFormat::f16}, 24), 1e-4) << family;
    EXPECT_LE(loss(m, {.kv = KvFormat::int8}, 24), 2e-3) << family;
  }
}

// Of a model with large embeddings, whose squares FP16 does not hold, and of one with a soft cap over 16 rows.
TEST(NpuServing, plain_models_do_not) {
  RandomModel m = model("llama");
  m.program.embedding_scale = 600;
  EXPECT_GT(loss(m, {.kv = KvFormat::f16, .legal = false}, 16), 0.1);
  EXPECT_LE(loss(m, {.kv = KvFormat::f16}, 16), 1e-4);
  m = model("gemma3", 20);
  EXPECT_GT(loss(m, {.kv = KvFormat::f16, .legal = false, .rows = 16}, 16), 1);
  EXPECT_LE(loss(m, {.kv = KvFormat::f16, .rows = 16}, 16), 1e-4);
}

// Attention inside the graph: the numbers of the segments with attention between them, the cache's rounding of new rows
// included.
TEST(NpuServing, one_graph_with_attention_inside_gives_what_segments_give) {
  for (const auto& [family, window] : {kFamilies[1], kFamilies[5], kFamilies[6]}) {
    const RandomModel m = model(family, window);
    const auto ids = some_ids(20);
    for (const KvFormat kv : {KvFormat::f32, KvFormat::f16, KvFormat::int8}) {
      const auto apart = NpuModel(m, {.kv = kv, .npu = false}).logits(ids);
      const auto fused = NpuModel(m, {.kv = kv, .fused = true, .npu = false}).logits(ids);
      EXPECT_LE(mean_kl(apart, fused, m.program.vocabulary), kv == KvFormat::int8 ? 1e-5 : 1e-7)
          << family << " " << name(kv);
    }
    EXPECT_LE(loss(m, {.kv = KvFormat::int8, .fused = true}, 20), 2e-3) << family;
  }
}

TEST(NpuServing, hybrids_in_blocks_of_one_row_and_of_sixteen_stay_near_FP32) {
  for (const char* family : {"lfm2", "qwen3_5"}) {
    const RandomModel m = model(family);
    EXPECT_LE(loss(m, {.kv = KvFormat::f16, .rows = 1}, 40), 1e-4) << family;
    EXPECT_LE(loss(m, {.kv = KvFormat::f16, .rows = 16}, 80), 1e-4) << family;
  }
}

TEST(NpuServing, blocks_of_one_row_and_of_sixteen_stay_near_FP32) {
  const RandomModel m = model("gemma3", 20);
  EXPECT_LE(loss(m, {.rows = 1}, 20), 2e-3);
  EXPECT_LE(loss(m, {.rows = 16}, 32), 2e-3);
}

}  // namespace
}  // namespace onw::testing
