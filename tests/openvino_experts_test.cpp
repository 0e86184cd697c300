// Experts as run-time inputs of graphs, on OpenVINO's CPU device: the driver by itself over any routing, and whole
// models against the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "passes/cut.h"
#include "passes/quantise.h"
#include "quant/unpack.h"
#include "targets/conformance.h"
#include "targets/openvino/compile.h"
#include "targets/openvino/expert_side.h"
#include "targets/reference/reference.h"
#include "tests/logits_kl.h"
#include "tests/openvino_model.h"
#include "tests/random_model.h"
#include "tests/run_ids.h"

namespace onw::testing {
namespace {

RandomModel model(std::string_view family, const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json config = tiny_config(family, 320);
  config.update(changes);
  if (family == "granitemoehybrid")
    config.update({{"num_local_experts", 6}, {"num_experts_per_tok", 2}, {"intermediate_size", 192}});
  return random_model(config, [](const WeightDecl& w) {
    return w.role == WeightRole::expert ? WeightFormat::q4c : WeightFormat::q4g128;
  });
}

constexpr const char* kFamilies[] = {"qwen3_moe", "gpt_oss", "lfm2_moe", "granitemoehybrid", "qwen3_5_moe"};

OpenVinoOptions in_graphs(std::vector<int64_t> block_rows) {
  return {.kv = KvFormat::f32,
          .exact = true,
          .block_rows = std::move(block_rows),
          .chunk_positions = 16,
          .expert_requests = 8};
}

// Steps of several blocks.
bool conforms(std::string_view family, const std::string& name, int tokens) {
  return register_conformance({.name = name,
                               .make = [m = model(family)]() -> std::unique_ptr<Executable> {
                                 OpenVinoOptions options = in_graphs({1, 8});
                                 options.max_step_rows = 64;
                                 return openvino_of(m, options);
                               },
                               .tokens = tokens,
                               .tolerance = 5e-3,
                               .why_not = no_openvino});
}

[[maybe_unused]] const bool kRegistered[] = {
    conforms("qwen3_moe", "WithOpenVinoConformance_experts_in_graphs", 24),
    conforms("qwen3_5_moe", "WithOpenVinoConformance_hybrid_experts_in_graphs", 50),
    conforms("lfm2_moe", "WithOpenVinoConformance_convolutions_experts_in_graphs", 50)};

class WithOpenVinoExperts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_openvino(); !why.empty()) GTEST_SKIP() << why;
  }
};

// ---- The driver: rows and logits are put into its buffers.

// The first layer of experts of a model, and its ExpertSide.
class Layer {
 public:
  explicit Layer(const RandomModel& m, int64_t max_rows, int most_requests = 8) : m_(m) {
    cut_ = cut_at_host_steps(*m.program.function("body")).value();
    segment_ = *openvino::segments_before_experts(m.program, cut_, m.weights).value().begin();
    steps_ = cut_.host[segment_];
    buffers_ = openvino::plan_buffers(cut_, max_rows).value();
    arena_.resize(static_cast<size_t>(buffers_.bytes / 4));
    OpenVinoOptions options{.runtime = openvino_runtime(), .exact = true};
    auto side =
        openvino::ExpertSide::create(m.program, cut_, buffers_, m.weights,
                                     {.runtime = options.runtime,
                                      .compile =
                                          [options, properties = openvino::device_properties(options, m.program)](
                                              const openvino::CompileJob& job, const openvino::Constants& constants) {
                                            return openvino::compile_graph(job, constants, properties, options);
                                          },
                                      .max_rows = max_rows,
                                      .most_requests = most_requests});
    EXPECT_TRUE(side) << side.error().message;
    side_ = std::move(*side);
  }

  float* value(const std::string& name, int64_t row) {
    const cpu::Slot& slot = buffers_.slots.at(name);
    return arena_.data() + slot.offset / 4 + row * slot.stride;
  }
  float* logits(int64_t row) { return value(steps_[0].operands[0], row); }
  float* x(int64_t row) { return value(steps_[1].operands[0], row); }
  float* y(int64_t row) { return value(steps_[1].result, row); }
  int64_t experts() const { return steps_[0].operand_types[0].last(); }
  int64_t hidden() const { return steps_[1].node.type.last(); }

  void fill(int64_t rows, uint32_t seed, const std::function<float(int64_t row, int64_t expert)>& logit) {
    std::mt19937 random(seed);
    std::normal_distribution<float> draw;
    for (int64_t r = 0; r < rows; ++r) {
      std::generate_n(x(r), hidden(), [&] { return draw(random); });
      for (int64_t e = 0; e < experts(); ++e) logits(r)[e] = logit(r, e) + 0.01f * draw(random);
    }
  }

  Result<void> run(int64_t rows, const CancelToken& cancel = CancelToken()) {
    return side_->run(segment_, reinterpret_cast<std::byte*>(arena_.data()), rows, cancel);
  }
  const openvino::ExpertRequests::Counts& counts() const { return side_->counts(); }

  // What the layer gives for a row, in double.
  std::vector<double> judge(int64_t row) {
    const Node &router = steps_[0].node, &node = steps_[1].node;
    const auto k = static_cast<size_t>(router.type.last());
    std::vector<int32_t> ids(k);
    std::vector<float> weights(k), bias;
    if (steps_[0].operands.size() > 1) bias = vector(m_.weights.find(steps_[0].operands[1]).value());
    RouteForm form{.kind = *route_kind(router.attributes.text("kind")),
                   .renormalise = router.attributes.integer("renormalise") != 0,
                   .eps = static_cast<float>(router.attributes.number("eps")),
                   .scale = static_cast<float>(router.attributes.number("scale", 1)),
                   .bias = bias.empty() ? nullptr : bias.data()};
    EXPECT_TRUE(route(form, {logits(row), static_cast<size_t>(experts())}, ids, weights));
    std::vector<double> sum(static_cast<size_t>(hidden()));
    for (size_t i = 0; i < k; ++i) {
      const auto product = [&](size_t part, const std::vector<double>& in) {
        const WeightView w = m_.weights.find(steps_[1].operands[2 + part]).value().expert(ids[i]);
        std::vector<double> out;
        std::vector<float> line(in.size()), biases;
        if (steps_[1].operands.size() > 5)
          biases = vector(m_.weights.find(steps_[1].operands[5 + part]).value().expert(ids[i]));
        for (int64_t o = 0; o < w.outputs; ++o) {
          dequantise_row(w, o, line);
          double one = biases.empty() ? 0 : biases[static_cast<size_t>(o)];
          for (size_t n = 0; n < in.size(); ++n) one += line[n] * in[n];
          out.push_back(one);
        }
        return out;
      };
      const std::vector<double> in(x(row), x(row) + hidden());
      auto inner = product(0, in);
      const auto up = product(1, in);
      for (size_t n = 0; n < inner.size(); ++n) inner[n] = gated(node, inner[n], up[n]);
      const auto out = product(2, inner);
      for (size_t n = 0; n < sum.size(); ++n) sum[n] += weights[i] * out[n];
    }
    return sum;
  }

 private:
  static std::vector<float> vector(const WeightView& w) {
    std::vector<float> values(static_cast<size_t>(w.outputs));
    for (int64_t i = 0; i < w.outputs; ++i) dequantise_row(w, i, std::span(values).subspan(static_cast<size_t>(i), 1));
    return values;
  }
  static double gated(const Node& n, double gate, double up) {
    if (n.attributes.text("activation") == "silu") return gate / (1 + std::exp(-gate)) * up;
    const double limit = n.attributes.number("limit", 7), alpha = n.attributes.number("alpha", 1.702);
    const double g = std::min(gate, limit), u = std::clamp(up, -limit, limit);
    return (u + 1) * g / (1 + std::exp(-alpha * g));
  }

  const RandomModel& m_;
  CutFunction cut_;
  size_t segment_ = 0;
  std::vector<HostStep> steps_;
  openvino::BufferPlan buffers_;
  std::vector<float> arena_;
  std::unique_ptr<openvino::ExpertSide> side_;
};

void expect_right(Layer& layer, int64_t rows, const std::string& what) {
  const auto ran = layer.run(rows);
  ASSERT_TRUE(ran) << what << ": " << ran.error().message;
  double off = 0, most = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const auto expected = layer.judge(r);
    for (size_t i = 0; i < expected.size(); ++i) {
      off = std::max(off, std::fabs(layer.y(r)[i] - expected[i]));
      most = std::max(most, std::fabs(expected[i]));
    }
  }
  EXPECT_LE(off, 1e-5 * most) << what << ", " << rows << " rows";
}

// Around every form's edge; rows that choose alike, that all choose the same, and that go round.
TEST_F(WithOpenVinoExperts, are_right_for_every_number_of_rows_and_every_routing) {
  for (const char* family : {"qwen3_moe", "gpt_oss"}) {
    const RandomModel m = model(family);
    Layer layer(m, 200);
    const int64_t n = layer.experts();
    for (const int64_t rows : {1, 2, 4, 5, 16, 17, 33, 64, 65, 130, 200}) {
      const auto seed = static_cast<uint32_t>(rows);
      layer.fill(rows, seed, [](int64_t r, int64_t e) { return static_cast<float>((r * 7 + e * 13) % 5); });
      expect_right(layer, rows, fmt::format("{}, mixed", family));
      layer.fill(rows, seed, [n](int64_t, int64_t e) {
        return e == n - 1 ? 30.0f : e == 0 ? 20.0f : e == 2 ? 10.0f : 0.0f;
      });
      expect_right(layer, rows, fmt::format("{}, all the same", family));
      layer.fill(rows, seed, [n](int64_t r, int64_t e) { return static_cast<float>((e - r % n + n) % n); });
      expect_right(layer, rows, fmt::format("{}, in turns", family));
    }
  }
}

// 40 experts: more than a run of 16 rows has slots for.
TEST_F(WithOpenVinoExperts, beyond_the_slots_of_a_run_take_further_runs) {
  const RandomModel m = model("qwen3_moe", {{"num_experts", 40}, {"num_experts_per_tok", 3}});
  Layer layer(m, 64);
  layer.fill(16, 1, [](int64_t r, int64_t e) { return e / 3 == r % 14 ? 9.0f : 0.0f; });
  const int64_t before = layer.counts().runs;
  expect_right(layer, 16, "40 experts");
  EXPECT_EQ(layer.counts().runs - before, 2);
  layer.fill(64, 2, [](int64_t r, int64_t e) { return e / 3 == r % 14 ? 9.0f : 0.0f; });
  expect_right(layer, 64, "40 experts");
}

TEST_F(WithOpenVinoExperts, that_stay_are_not_bound_again_and_change_no_number) {
  const RandomModel m = model("qwen3_moe");
  Layer layer(m, 1);
  const auto prefer = [&](std::initializer_list<int64_t> experts) {
    layer.fill(1, 3, [&](int64_t, int64_t e) { return std::ranges::find(experts, e) != experts.end() ? 9.0f : 0.0f; });
  };
  prefer({1, 3, 5});
  expect_right(layer, 1, "first");
  EXPECT_EQ(layer.counts().bound, 3);
  prefer({1, 3, 5});
  expect_right(layer, 1, "again");
  EXPECT_EQ(layer.counts().bound, 3);
  EXPECT_EQ(layer.counts().kept, 3);
  prefer({0, 3, 6});  // 3 stays in its slot, between two others
  expect_right(layer, 1, "two others");
  EXPECT_EQ(layer.counts().bound, 5);
  EXPECT_EQ(layer.counts().kept, 4);
}

TEST_F(WithOpenVinoExperts, end_between_two_runs_when_cancelled_and_go_on_afterwards) {
  const RandomModel m = model("qwen3_moe");
  Layer layer(m, 64, 2);
  CancelToken cancel;
  cancel.cancel();
  layer.fill(40, 1, [](int64_t r, int64_t e) { return static_cast<float>((r + e) % 3); });
  const auto ran = layer.run(40, cancel);
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, Code::cancelled);
  expect_right(layer, 40, "afterwards");
}

// ---- Whole models

void agrees(const RandomModel& m, const OpenVinoOptions& options, int64_t count, const std::vector<int64_t>& segments,
            std::string_view what) {
  const auto ours = openvino_of(m, options);
  ASSERT_NE(ours, nullptr) << what;
  auto reference = make_reference(set_kv_format(m.program, name(options.kv)), m.weights, {.threads = 2});
  ASSERT_TRUE(reference) << reference.error().message;
  const auto ids = some_tokens(**reference, count, 5);
  const auto expected = logits_in_segments(**reference, ids, std::vector<int64_t>{200});
  const auto got = logits_in_segments(*ours, ids, segments);
  ASSERT_TRUE(expected && got) << what << (got ? "" : ": " + got.error().message);
  ASSERT_EQ(got->size(), expected->size());
  EXPECT_LE(largest_difference(*expected, *got), 1e-4) << what;
  EXPECT_LE(std::fabs(mean_kl(*expected, *got, ours->info().vocabulary)), 1e-7) << what;
}

TEST_F(WithOpenVinoExperts, agree_with_the_reference_in_every_family) {
  for (const char* family : kFamilies) {
    const RandomModel m = model(family);
    const auto cut = cut_at_host_steps(*m.program.function("body"));
    const auto layers = openvino::segments_before_experts(m.program, *cut, m.weights);
    ASSERT_TRUE(layers) << layers.error().message;
    EXPECT_EQ(layers->size(), family == std::string_view("lfm2_moe") ? 1U : 2U) << family;
    agrees(m, in_graphs({1, 4, 16}), 30, {1, 4, 15, 1, 1, 3, 5}, family);
  }
}

// Steps longer than the largest graph go layer by layer, and states from block to block.
TEST_F(WithOpenVinoExperts, agree_with_the_reference_layer_by_layer) {
  for (const char* family : kFamilies) agrees(model(family), in_graphs({1, 16}), 110, {17, 1, 65, 27}, family);
  for (const char* family : {"qwen3_5_moe", "lfm2_moe"}) {
    agrees(model(family), in_graphs({1, 8}), 110, {5, 11, 33, 15, 46}, family);  // over one edge of 16 and over several
    agrees(model(family), in_graphs({1, 4}), 60, {3, 18, 39}, family);           // blocks that leave a state a row
  }
}

// The path of the NPU's plugin, and the graphs as they are for an NPU.
TEST_F(WithOpenVinoExperts, run_by_the_NPUs_plugin) {
  const auto runtime = openvino_runtime();
  for (const auto& [key, value] :
       {std::pair("INFERENCE_PRECISION_HINT", "f32"), std::pair("DYNAMIC_QUANTIZATION_GROUP_SIZE", "0")})
    ASSERT_TRUE(runtime->set_property("CPU", key, value));
  OpenVinoOptions options = in_graphs({1, 16});
  options.platform = "4000";
  options.openvino_device = "NPU";
  options.properties = {{"NPU_USE_NPUW", "YES"}, {"NPUW_DEVICES", "CPU"}, {"NPUW_ONLINE_PIPELINE", "NONE"}};
  for (const char* family : {"qwen3_moe", "gpt_oss"}) agrees(model(family), options, 40, {17, 1, 4, 18}, family);
}

TEST_F(WithOpenVinoExperts, in_other_formats_are_computed_by_the_host) {
  const RandomModel grouped =
      random_model(tiny_config("qwen3_moe", 320), [](const WeightDecl&) { return WeightFormat::q4g128; });
  OpenVinoOptions options = in_graphs({1, 16});
  options.platform = "4000";
  const auto host = openvino_of(grouped, options), graphs = openvino_of(model("qwen3_moe"), options);
  ASSERT_TRUE(host && graphs);
  EXPECT_NE(host->info().hardware.find("experts on the CPU"), std::string::npos) << host->info().hardware;
  EXPECT_NE(host->info().hardware.find("--for npu"), std::string::npos) << host->info().hardware;
  EXPECT_NE(graphs->info().hardware.find("experts in graphs"), std::string::npos) << graphs->info().hardware;
  agrees(grouped, options, 20, {17, 1}, "host");
}

}  // namespace
}  // namespace onw::testing
