// The graphs of every family for every NPU generation, read line by line: nothing in them that an NPU's compiler ends
// on or computes wrongly, whatever the lowering means to write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/temp_folder.h"
#include "passes/cut.h"
#include "targets/openvino/attention_graph.h"
#include "targets/openvino/expert_side.h"
#include "targets/openvino/fused.h"
#include "targets/openvino/graphs.h"
#include "tests/random_model.h"

namespace onw::testing {
namespace {

using openvino::Constants;

constexpr float kHalfMax = 65504;

std::string attribute(std::string_view line, const std::string& name) {
  const size_t at = line.find(" " + name + "=\"");
  if (at == line.npos) return "";
  const std::string_view rest = line.substr(at + name.size() + 3);
  return std::string(rest.substr(0, rest.find('"')));
}

struct Layer {
  std::string name, type, element, line;
  std::vector<std::string> inputs;  // ids
};

std::map<std::string, Layer> layers_of(const std::string& xml) {
  std::map<std::string, Layer> layers;
  std::istringstream lines(xml);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("<layer "))
      layers[attribute(line, "id")] = {
          attribute(line, "name"), attribute(line, "type"), attribute(line, "element_type"), line, {}};
    if (line.starts_with("<edge ")) layers[attribute(line, "to-layer")].inputs.push_back(attribute(line, "from-layer"));
  }
  return layers;
}

bool low_bit(const std::string& element) {
  return element == "i4" || element == "u4" || element == "nf4" || element == "u2" || element == "f4e2m1";
}

// A constant of numbers that FP16 does not hold.
bool beyond_half(const std::string& line, const std::byte* memory) {
  if (memory == nullptr || attribute(line, "element_type") != "f32") return false;
  const size_t offset = std::stoul(attribute(line, "offset")), size = std::stoul(attribute(line, "size"));
  std::vector<float> values(size / sizeof(float));
  std::memcpy(values.data(), memory + offset, size);
  return std::ranges::any_of(values, [](float x) { return !std::isfinite(x) || std::fabs(x) > kHalfMax; });
}

// What is wrong with a graph for an NPU, one sentence each.
std::vector<std::string> faults(const std::string& xml, const std::byte* memory) {
  std::vector<std::string> found;
  const auto layers = layers_of(xml);
  const auto read = [&](const Layer& l, const std::string& type) {
    return std::ranges::any_of(l.inputs, [&](const std::string& id) { return layers.at(id).type == type; });
  };
  for (const auto& [id, l] : layers) {
    if (l.line.find("<dim>-1</dim>") != l.line.npos || attribute(l.line, "shape").find('?') != std::string::npos)
      found.push_back(l.name + " has a dynamic shape");
    if (l.type == "Const" && l.element == "boolean") found.push_back(l.name + " is a constant of booleans");
    if (l.type == "Const" && beyond_half(l.line, memory)) found.push_back(l.name + " is beyond FP16");
    if (l.type == "Gather") found.push_back(l.name + " looks rows up in the graph");
    if (l.type == "Sin" || l.type == "Cos") found.push_back(l.name + " makes angles in the graph");
    if (!attribute(l.line, "version").starts_with("opset")) found.push_back(l.name + " is of no opset");
    if (l.type == "Result")
      for (const char* four : {"I4\"", "U4\"", "NF4\"", "U2\""})
        if (l.line.find(std::string("precision=\"") + four) != l.line.npos)
          found.push_back(l.name + " leaves the graph with four bits");
    if (l.type == "Parameter" && (l.name == "mask" || l.name.ends_with(".mask")))
      for (const auto& [other, user] : layers)
        if (std::ranges::find(user.inputs, id) != user.inputs.end() && user.type != "Maximum")
          found.push_back(l.name + " reaches " + user.name + " as it comes");
    if (low_bit(l.element) && (l.type == "Const" || l.type == "Parameter"))
      for (const auto& [other, user] : layers)
        if (std::ranges::find(user.inputs, id) != user.inputs.end() && user.type != "Convert")
          found.push_back(l.name + " is read by a " + user.type);
    if (l.type == "ReduceSum" && read(l, "Convert")) found.push_back(l.name + " sums codes as they are");
  }
  return found;
}

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(IrFaults, are_found) {
  const auto layer = [](const std::string& type, const std::string& data, const std::string& port) {
    return "<layer id=\"0\" name=\"a\" type=\"" + type + "\" version=\"opset1\"><data " + data + "/><output><port " +
           port + "></port></output></layer>\n";
  };
  EXPECT_THAT(faults(layer("Parameter", R"(shape="?,8" element_type="f32")", ""), nullptr),
              ElementsAre("a has a dynamic shape"));
  EXPECT_THAT(faults(layer("Const", R"(element_type="boolean" shape="1")", ""), nullptr),
              ElementsAre("a is a constant of booleans"));
  EXPECT_THAT(faults(layer("Gather", "", ""), nullptr), ElementsAre("a looks rows up in the graph"));
  EXPECT_THAT(faults(layer("Result", "", R"(precision="I4")"), nullptr),
              ElementsAre("a leaves the graph with four bits"));
  EXPECT_THAT(faults(layer("Cos", "", ""), nullptr), ElementsAre("a makes angles in the graph"));
  const float infinite[] = {1, -INFINITY};
  EXPECT_THAT(faults(layer("Const", R"(element_type="f32" shape="2" offset="0" size="8")", ""),
                     std::as_bytes(std::span(infinite)).data()),
              ElementsAre("a is beyond FP16"));
  const std::string mask =
      "<layer id=\"0\" name=\"mask\" type=\"Parameter\" version=\"opset1\">\n"
      "<layer id=\"1\" name=\"s\" type=\"Add\" version=\"opset1\">\n<edge from-layer=\"0\" from-port=\"0\" "
      "to-layer=\"1\" to-port=\"0\"/>\n";
  EXPECT_THAT(faults(mask, nullptr), ElementsAre("mask reaches s as it comes"));
}

constexpr const char* kFamilies[] = {"llama", "qwen2", "qwen3", "granite", "granitemoehybrid", "gemma3", "gemma4"};
// Whose states are inside the graphs, or whose experts the host computes between them.
constexpr const char* kSharedFamilies[] = {"lfm2", "qwen3_5", "qwen3_moe", "gpt_oss", "lfm2_moe", "qwen3_5_moe"};

TEST(IrFaults, no_graph_of_any_family_has_one) {
  std::vector<std::string> families(std::begin(kFamilies), std::end(kFamilies));
  families.insert(families.end(), std::begin(kSharedFamilies), std::end(kSharedFamilies));
  for (const std::string& family : families) {
    const RandomModel m =
        random_model(tiny_config(family, 320), [](const WeightDecl&) { return WeightFormat::q4g128; });
    const auto cut = cut_for_fixed_rows(*m.program.function("body"));
    ASSERT_TRUE(cut) << cut.error().message;
    for (const char* platform : {"3720", "4000", "5010"})
      for (const int64_t rows : {1, 4, 16}) {
        auto constants = Constants::create(m.weights);
        ASSERT_TRUE(constants);
        const auto graphs = openvino::lower_program(m.program, *cut, m.weights, *constants, rows, platform);
        ASSERT_TRUE(graphs) << family << ": " << graphs.error().message;
        for (const openvino::Ir& ir : graphs->body)
          EXPECT_THAT(faults(ir.xml, constants->data()), IsEmpty()) << family << " " << platform;
        EXPECT_THAT(faults(graphs->head.xml, constants->data()), IsEmpty()) << family << " " << platform;
      }
  }
}

TEST(IrFaults, no_graph_with_attention_inside_has_one) {
  for (const char* family : kFamilies) {
    const RandomModel m =
        random_model(tiny_config(family, 320), [](const WeightDecl&) { return WeightFormat::q4g128; });
    const CutFunction pieces = cut_in_pieces(*m.program.function("body"), 1);
    // What gemma4's layers have to say of a token crosses every cut.
    EXPECT_EQ(pieces.segments.size() > 1, std::string_view(family) != "gemma4");
    const openvino::ChunkForm cache{
        .states = m.program.states, .kv = KvFormat::int8, .max_context = 4096, .memory = {}};
    const std::vector<int64_t> rows = {16};
    const openvino::FusedForm form = openvino::fused_forms(rows, cache).at(1);
    EXPECT_EQ(form.length, 2048);
    auto constants = Constants::create(m.weights);
    ASSERT_TRUE(constants);
    const auto graphs = lower_fused(m.program, pieces, form, cache, m.weights, *constants, "4000");
    ASSERT_TRUE(graphs) << family << ": " << graphs.error().message;
    for (const openvino::Ir& ir : *graphs) EXPECT_THAT(faults(ir.xml, constants->data()), IsEmpty()) << family;
  }
}

TEST(IrFaults, no_graph_of_attention_has_one) {
  for (const KvFormat kv : {KvFormat::f16, KvFormat::int8})
    for (const double cap : {0.0, 50.0})
      for (const int64_t rows : {1, 64}) {
        auto constants = Constants::create({});
        ASSERT_TRUE(constants);
        const auto ir = openvino::lower(openvino::attention_graph({.rows = rows,
                                                                   .heads = 4,
                                                                   .kv_heads = 2,
                                                                   .head_dim = 64,
                                                                   .value_dim = 512,
                                                                   .length = 1024,
                                                                   .scale = 0.125,
                                                                   .soft_cap = cap,
                                                                   .kv = kv}),
                                        {}, *constants, "4000");
        ASSERT_TRUE(ir) << ir.error().message;
        EXPECT_THAT(faults(ir->xml, constants->data()), IsEmpty());
      }
}

TEST(IrFaults, no_graph_of_experts_has_one) {
  for (const char* family : {"qwen3_moe", "gpt_oss", "lfm2_moe", "qwen3_5_moe"}) {
    const RandomModel m = random_model(tiny_config(family, 320), [](const WeightDecl&) { return WeightFormat::q4c; });
    const auto cut = cut_at_host_steps(*m.program.function("body"));
    const auto shapes = openvino::expert_shapes(m.program, *cut, m.weights, 64);
    ASSERT_TRUE(shapes) << shapes.error().message;
    EXPECT_EQ(shapes->size(), 6U) << family << ": equal layers share their graphs";
    for (const openvino::ExpertShape& shape : *shapes) {
      auto constants = Constants::create({});
      ASSERT_TRUE(constants);
      const auto ir = openvino::lower_experts(shape, *constants, "4000");
      ASSERT_TRUE(ir) << ir.error().message;
      EXPECT_THAT(faults(ir->xml, constants->data()), IsEmpty()) << family;
      const auto layers = layers_of(ir->xml);
      EXPECT_EQ(std::ranges::count_if(layers, [](const auto& l) { return l.second.element == "i4"; }), 2 * shape.slots);
    }
  }
}

TEST(WrittenGraphs, are_those_of_experts_too_where_the_device_takes_them) {
  const TempFolder folder;
  const RandomModel m =
      random_model(tiny_config("qwen3_moe", 320), [](const WeightDecl&) { return WeightFormat::q4c; });
  const auto experts_of = [&](int64_t rows, std::string_view device) {
    const auto names = openvino::write_graphs(m.program, m.weights, {.rows = rows, .device = device}, folder.path());
    EXPECT_TRUE(names) << names.error().message;
    std::vector<std::string> experts;
    for (const std::string& name : *names)
      if (name.starts_with("experts")) experts.push_back(name);
    for (const std::string& name : experts) EXPECT_TRUE(std::filesystem::exists(folder / (name + ".xml"))) << name;
    return experts;
  };
  EXPECT_THAT(experts_of(1, "4000"), ElementsAre("experts.3.1.0"));
  EXPECT_THAT(experts_of(16, "4000"), ElementsAre("experts.7.16.0"));
  EXPECT_THAT(experts_of(64, "4000"),
              ElementsAre("experts.7.grouped.16.0", "experts.7.grouped.32.1", "experts.4.grouped.64.2"));
  EXPECT_THAT(experts_of(1, "openvino:CPU"), IsEmpty());
}

// The graphs of a model whose matrices are said to be of a format: only what is taken and refused is of interest.
Result<openvino::ProgramGraphs> graphs_of(WeightFormat format, std::string_view platform) {
  static const RandomModel m =
      random_model(tiny_config("llama", 320), [](const WeightDecl&) { return WeightFormat::q4g64; });
  const WeightSet weights{[format](std::string_view name) -> Result<WeightView> {
                            auto view = m.weights.find(name);
                            if (view && view->format == WeightFormat::q4g64) view->format = format;
                            return view;
                          },
                          m.weights.owner};
  const auto cut = cut_for_fixed_rows(*m.program.function("body"));
  RETURN_IF_ERROR(cut);
  auto constants = Constants::create(m.weights);
  RETURN_IF_ERROR(constants);
  return openvino::lower_program(m.program, *cut, weights, *constants, 1, platform);
}

// Every format on every generation: taken as its plain codes, or refused before compiling with the command that helps.
TEST(NpuFormats, are_taken_or_refused_with_what_helps) {
  using enum WeightFormat;
  for (const WeightFormat format : {q4g128, q4g64, q4sg128, q4c, q8c, q8g128, q8g64, f16, nf4c, q4g32, q4sg32, q4g32m,
                                    q5g32m, q8g32, iq4g32, u2g128, mxfp4})
    for (const char* platform : {"3720", "4000", "5010"}) {
      const auto graphs = graphs_of(format, platform);
      const bool of_32 = info(format).group == 32;  // all of them, with and without a minimum
      const bool refused = of_32 || format == u2g128 || (format == nf4c && platform == std::string("3720"));
      EXPECT_EQ(static_cast<bool>(graphs), !refused) << name(format) << " on " << platform;
      if (graphs) continue;
      EXPECT_EQ(graphs.error().code, Code::unsupported);
      for (const std::string& said :
           {std::string(name(format)), std::string(platform), std::string("onw convert SRC OUT --for npu")})
        EXPECT_NE(graphs.error().message.find(said), std::string::npos) << graphs.error().message;
    }
}

TEST(NpuFormats, without_any_arithmetic_are_refused_on_the_CPU_device_too) {
  for (const WeightFormat format : {WeightFormat::mxfp4, WeightFormat::iq4g32}) {
    const auto graphs = graphs_of(format, "openvino:CPU");
    ASSERT_FALSE(graphs) << name(format);
    EXPECT_EQ(graphs.error().code, Code::unsupported);
    EXPECT_NE(graphs.error().message.find("onw convert SRC OUT --format q4g128"), std::string::npos)
        << graphs.error().message;
  }
}

TEST(NpuShapes, that_are_not_fixed_are_refused) {
  const RandomModel m = random_model(tiny_config("llama", 320), [](const WeightDecl&) { return WeightFormat::q4g128; });
  const auto cut = cut_for_fixed_rows(*m.program.function("body"));
  auto constants = Constants::create(m.weights);
  ASSERT_TRUE(cut && constants);
  const auto graphs = openvino::lower_program(m.program, *cut, m.weights, *constants, kRows, "4000");
  ASSERT_FALSE(graphs);
  EXPECT_NE(graphs.error().message.find("fixed shapes"), std::string::npos) << graphs.error().message;
}

}  // namespace
}  // namespace onw::testing
