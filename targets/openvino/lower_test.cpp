// Graphs as OpenVINO's text, and every op on OpenVINO's CPU device against the reference.
#include "targets/openvino/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "graph/ops.h"
#include "graph/text.h"
#include "graph/verifier.h"
#include "passes/decompose.h"
#include "quant/quantise.h"
#include "quant/unpack.h"
#include "store/runs_on.h"
#include "targets/openvino/testing.h"
#include "targets/reference/interpreter.h"
#include "targets/reference/kv_cache.h"

namespace onw::openvino {
namespace {

using reference::Inputs;
using reference::Tensor;
using ::testing::HasSubstr;

std::vector<float> normal(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(count);
  for (float& x : values) x = distribution(random);
  return values;
}

// Weights of the declared shapes and formats, drawn from their names.
WeightSet drawn_weights(const Program& program) {
  struct Stored {
    std::vector<std::byte> codes, scales, minima;
    WeightView view;
  };
  const auto stored = std::make_shared<std::map<std::string, Stored, std::less<>>>();
  for (const WeightDecl& w : program.weights) {
    const int64_t outputs = w.shape[0], inputs = w.shape.size() > 1 ? w.shape[1] : 1;
    const WeightBytes bytes = weight_bytes(w.format, Layout::rows, outputs, inputs);
    Stored& s = (*stored)[w.name];
    s.codes.resize(static_cast<size_t>(bytes.codes));
    s.scales.resize(static_cast<size_t>(bytes.scales));
    s.minima.resize(static_cast<size_t>(bytes.minima));
    const auto values = normal(static_cast<size_t>(outputs * inputs), static_cast<uint32_t>(w.name.size()));
    const auto done = quantise(w.format, values, outputs, inputs, {s.codes, s.scales, s.minima});
    EXPECT_TRUE(done) << done.error().message;
    s.view = {w.format, Layout::rows, outputs, inputs, s.codes, s.scales, s.minima};
  }
  return {[stored](std::string_view name) -> Result<WeightView> {
            const auto found = stored->find(name);
            if (found == stored->end()) return error(Code::missing_tensor, "no weight '{}'", name);
            return found->second.view;
          },
          stored};
}

Program program_of(const std::string& head, const std::string& body) {
  auto program =
      parse_program("program p layers=1 hidden=64 vocabulary=9 max_context=8 embedding=e embedding_scale=1\n" + head +
                    "f {\n" + body + "}\n");
  EXPECT_TRUE(program) << program.error().message << "\n" << body;
  return program ? std::move(*program) : Program();
}

// ---- Text

TEST(OpenVinoLowering, writes_layers_edges_and_names) {
  const Program p =
      program_of("",
                 "  %0 = input \"x\" : f32[2,3]\n  %1 = input \"a<b\" : f32[2,3]\n  %2 = add(%0, %1) \"s\" : f32[2,3]\n"
                 "  return y=%2\n");
  auto constants = Constants::create({});
  ASSERT_TRUE(constants);
  const auto ir = lower(p.functions[0], {}, *constants, "openvino:CPU");
  ASSERT_TRUE(ir) << ir.error().message;
  EXPECT_EQ(ir->xml, R"(<?xml version="1.0"?>
<net name="f" version="11">
<layers>
<layer id="0" name="x" type="Parameter" version="opset1"><data shape="2,3" element_type="f32"/><output><port id="0" precision="FP32" names="x"><dim>2</dim><dim>3</dim></port></output></layer>
<layer id="1" name="a&lt;b" type="Parameter" version="opset1"><data shape="2,3" element_type="f32"/><output><port id="0" precision="FP32" names="a&lt;b"><dim>2</dim><dim>3</dim></port></output></layer>
<layer id="2" name="s" type="Add" version="opset1"><data auto_broadcast="numpy"/><input><port id="0" precision="FP32"><dim>2</dim><dim>3</dim></port><port id="1" precision="FP32"><dim>2</dim><dim>3</dim></port></input><output><port id="2" precision="FP32" names="y"><dim>2</dim><dim>3</dim></port></output></layer>
<layer id="3" name="y/result" type="Result" version="opset1"><input><port id="0" precision="FP32"><dim>2</dim><dim>3</dim></port></input></layer>
</layers>
<edges>
<edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>
<edge from-layer="1" from-port="0" to-layer="2" to-port="1"/>
<edge from-layer="2" from-port="2" to-layer="3" to-port="0"/>
</edges>
</net>
)");
  ASSERT_EQ(ir->inputs.size(), 2U);
  EXPECT_EQ(ir->outputs[0].name, "y");
}

constexpr const char* kLinear =
    "  %0 = input \"x\" : f32[S,256]\n  %1 = weight \"w\" : f32[32,256]\n  %2 = linear(%0, %1) \"p\" : f32[S,32]\n"
    "  return y=%2\n";

// The IR of x times one weight of that format, for so many rows.
Result<Ir> lower_linear(std::string_view format, Constants& constants, int64_t rows, std::string_view device) {
  const Program p = program_of(fmt::format("weight w [32,256] {} matrix\n", format), kLinear);
  const auto primitive = decompose(p, p.functions[0], {.rows = rows});
  RETURN_IF_ERROR(primitive);
  return lower(*primitive, drawn_weights(p), constants, device);
}

TEST(OpenVinoLowering, keeps_four_bit_codes_in_the_form_that_the_plugins_take) {
  auto constants = Constants::create({});
  ASSERT_TRUE(constants);
  const auto ir = lower_linear("q4g128", *constants, 7, "openvino:CPU");
  ASSERT_TRUE(ir) << ir.error().message;
  EXPECT_THAT(ir->xml, HasSubstr(R"(<data element_type="i4" shape="32,2,128" offset="0" size="4096"/>)"));
  EXPECT_THAT(ir->xml, HasSubstr(R"(<data element_type="f16" shape="32,2,1" offset="4096" size="128"/>)"));
  EXPECT_THAT(ir->xml, HasSubstr(R"(<data transpose_a="false" transpose_b="true"/>)"));
  EXPECT_EQ(constants->bytes(), 4096 + 128 + 16);  // codes, scales, and the shape that the codes end in
}

TEST(OpenVinoLowering, gives_a_graph_of_any_number_of_rows_no_number) {
  auto constants = Constants::create({});
  ASSERT_TRUE(constants);
  const auto ir = lower_linear("q8c", *constants, kRows, "openvino:CPU");
  ASSERT_TRUE(ir) << ir.error().message;
  EXPECT_THAT(ir->xml, HasSubstr(R"(<data shape="?,256" element_type="f32"/>)"));
  EXPECT_THAT(ir->xml, HasSubstr("<dim>-1</dim><dim>32</dim>"));
}

TEST(OpenVinoLowering, refuses_a_format_that_the_platform_does_not_take_before_compiling) {
  auto constants = Constants::create({});
  ASSERT_TRUE(constants);
  const auto npu = lower_linear("q4g32m", *constants, 1, "4000");
  ASSERT_FALSE(npu);
  EXPECT_EQ(npu.error().code, Code::unsupported);
  EXPECT_THAT(npu.error().message, HasSubstr("'w' is q4g32m, which 4000 does not compute with"));
  EXPECT_THAT(npu.error().message, HasSubstr("--for npu"));
  EXPECT_FALSE(lower_linear("nf4c", *constants, 1, "3720"));
  EXPECT_TRUE(lower_linear("nf4c", *constants, 1, "4000"));
  EXPECT_FALSE(lower_linear("iq4g32", *constants, 1, "openvino:CPU"));
}

TEST(OpenVinoLowering, names_the_step_that_has_no_form) {
  const Program p = program_of("weight w [64] f32 vector\n",
                               "  %0 = input \"x\" : f32[2,64]\n  %1 = weight \"w\" : f32[64]\n"
                               "  %2 = hadamard(%0, %1; block=16) \"L03/rotate\" : f32[2,64]\n  return y=%2\n");
  auto constants = Constants::create({});
  ASSERT_TRUE(constants);
  const auto ir = lower(p.functions[0], drawn_weights(p), *constants, "openvino:CPU");
  ASSERT_FALSE(ir);
  EXPECT_THAT(ir.error().message, HasSubstr("f: L03/rotate: 'hadamard' has no OpenVINO form"));
}

// ---- Numbers

class WithOpenVinoLowering : public ::testing::Test {
 protected:
  void SetUp() override {
    runtime_ = onw::testing::openvino_runtime();
    if (runtime_ == nullptr) GTEST_SKIP() << onw::testing::kNoOpenVino;
  }

  struct Ran {
    std::vector<float> y;
    std::vector<ProfileEntry> profile;
  };

  // The only output of the graph, for inputs of `rows` rows.
  Result<Ran> run(const Ir& ir, const Constants& constants, const Inputs& inputs, int64_t rows) {
    const std::array<int64_t, 1> bytes = {constants.bytes()};
    const auto weights = runtime_->tensor(DType::u8, bytes, constants.data());
    RETURN_IF_ERROR(weights);
    const auto compiled = runtime_->compile(
        ir.xml, *weights, "CPU",
        {{"INFERENCE_PRECISION_HINT", "f32"}, {"DYNAMIC_QUANTIZATION_GROUP_SIZE", "0"}, {"PERF_COUNT", "YES"}});
    RETURN_IF_ERROR(compiled);
    auto request = compiled->request();
    RETURN_IF_ERROR(request);
    std::vector<std::vector<int32_t>> ids;
    const auto bind = [&](const IrPort& port, float* memory) -> Result<void> {
      Shape shape = port.type.shape;
      for (int64_t& d : shape)
        if (d == kRows) d = rows;
      void* data = memory;
      if (port.type.dtype == DType::i32) {
        int64_t n = 1;
        for (const int64_t d : shape) n *= d;
        data = ids.emplace_back(memory, memory + n).data();
      }
      const auto tensor = runtime_->tensor(port.type.dtype, shape, data);
      RETURN_IF_ERROR(tensor);
      return request->set(port.name, *tensor);
    };
    for (const IrPort& port : ir.inputs) RETURN_IF_ERROR(bind(port, const_cast<float*>(inputs.at(port.name).f.data())));
    Ran ran;
    ran.y.resize(1);
    for (const int64_t d : ir.outputs[0].type.shape)
      ran.y.resize(ran.y.size() * static_cast<size_t>(d == kRows ? rows : d));
    RETURN_IF_ERROR(bind(ir.outputs[0], ran.y.data()));
    RETURN_IF_ERROR(request->run());
    auto profile = request->profile();
    RETURN_IF_ERROR(profile);
    ran.profile = std::move(*profile);
    return ran;
  }

  // What the reference computes for the same primitives.
  static std::vector<float> expected(const Program& p, const Function& f, const Inputs& inputs, int64_t rows) {
    const WeightSet weights = drawn_weights(p);
    const Step step;
    const reference::Context c{
        .program = p, .weights = weights, .step = &step, .rows = rows, .cache = [](int, int) -> reference::KvCache& {
          std::abort();
        }};
    const auto out = run_function(f, inputs, c, CancelToken(), false);
    EXPECT_TRUE(out) << out.error().message;
    return out ? out->at("y").f : std::vector<float>();
  }

  static Inputs drawn_inputs(const Function& f, int64_t rows) {
    Inputs inputs;
    uint32_t seed = 1;
    for (const Node& n : f.nodes) {
      if (n.op != Op::input) continue;
      Tensor t = reference::make_tensor(n.type, rows);
      t.f = normal(t.f.size(), ++seed);
      if (n.type.dtype == DType::i32)
        for (float& x : t.f) x = std::floor(std::fabs(x));
      inputs[n.label] = std::move(t);
    }
    return inputs;
  }

  static void expect_close(const std::vector<float>& ours, const std::vector<float>& theirs, double bound,
                           const std::string& what) {
    ASSERT_EQ(ours.size(), theirs.size()) << what;
    double most = 0, off = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      most = std::max<double>(most, std::fabs(theirs[i]));
      off = std::max<double>(off, std::fabs(ours[i] - theirs[i]));
    }
    EXPECT_LE(off, bound * most) << what;
    EXPECT_GT(most, 0) << what << ": a test on zeros says nothing";
  }

  // One product computes with the codes, and nothing unpacks them before it.
  static void expect_codes_stay(const std::vector<ProfileEntry>& profile, bool low_bits, const std::string& what) {
    int compressed = 0;
    for (const ProfileEntry& e : profile) {
      compressed += e.kind == "FullyConnectedCompressed";
      EXPECT_FALSE(e.name.starts_with("w")) << what << ": " << e.kind << " " << e.name;  // layers of the weight
    }
    EXPECT_EQ(compressed, low_bits ? 1 : 0) << what;
  }

  // Lowers `body` for one row, for five, and for any number of them, and compares with the reference.
  void equals_reference(const std::string& head, const std::string& body, double bound = 5e-6) {
    const Program p = program_of(head, body);
    for (const auto& [fixed, rows] : {std::pair<int64_t, int64_t>{1, 1}, {5, 5}, {kRows, 3}}) {
      const auto primitive = decompose(p, p.functions[0], {.rows = fixed});
      ASSERT_TRUE(primitive) << primitive.error().message;
      auto constants = Constants::create({});
      ASSERT_TRUE(constants);
      const auto ir = lower(*primitive, drawn_weights(p), *constants, "openvino:CPU");
      ASSERT_TRUE(ir) << ir.error().message;
      const Inputs inputs = drawn_inputs(*primitive, rows);
      const auto ran = run(*ir, *constants, inputs, rows);
      ASSERT_TRUE(ran) << ran.error().message << "\n" << ir->xml;
      std::vector<float> y = ran->y;
      expect_close(y, expected(p, *primitive, inputs, rows), bound, fmt::format("{} rows of\n{}", fixed, body));
    }
  }

  std::shared_ptr<const Runtime> runtime_;
};

const std::string kX = "  %0 = input \"x\" : f32[S,64]\n";

TEST_F(WithOpenVinoLowering, of_one_operand) {
  for (const char* op : {"exp", "tanh", "erf", "sigmoid", "abs", "round", "softmax"})
    equals_reference("", fmt::format("{}  %1 = {}(%0) \"y\" : f32[S,64]\n  return y=%1\n", kX, op), 1e-5);
  equals_reference("", kX + "  %1 = abs(%0) \"a\" : f32[S,64]\n  %2 = sqrt(%1) \"y\" : f32[S,64]\n  return y=%2\n");
}

TEST_F(WithOpenVinoLowering, of_two_operands) {
  for (const char* op : {"add", "subtract", "multiply", "divide", "maximum", "minimum"})
    equals_reference("", fmt::format("{}  %1 = input \"z\" : f32[S,64]\n  %2 = {}(%0, %1) \"y\" : f32[S,64]\n"
                                     "  return y=%2\n",
                                     kX, op));
  equals_reference("",
                   kX + "  %1 = input \"z\" : f32[S,64]\n  %2 = abs(%0) \"a\" : f32[S,64]\n"
                        "  %3 = power(%2, %1) \"y\" : f32[S,64]\n  return y=%3\n",
                   2e-5);
  equals_reference("", kX + "  %1 = input \"z\" : f32[S,64]\n  %2 = less(%0, %1) \"l\" : bool[S,64]\n"
                            "  %3 = select(%2, %1, %0) \"y\" : f32[S,64]\n  return y=%3\n");
}

TEST_F(WithOpenVinoLowering, of_shapes) {
  equals_reference("", kX + "  %1 = reshape(%0; shape=[S,4,16]) \"r\" : f32[S,4,16]\n"
                            "  %2 = transpose(%1; order=[1,0,2]) \"y\" : f32[4,S,16]\n  return y=%2\n");
  equals_reference("", kX + "  %1 = slice(%0; axis=1, begin=8, end=40) \"a\" : f32[S,32]\n"
                            "  %2 = slice(%0; axis=-1, begin=60, end=64) \"b\" : f32[S,4]\n"
                            "  %3 = concat(%1, %2; axis=1) \"y\" : f32[S,36]\n  return y=%3\n");
  equals_reference("",
                   "  %0 = input \"x\" : f32[1,16]\n  %1 = broadcast(%0; shape=[3,4,16]) \"y\" : f32[3,4,16]\n"
                   "  return y=%1\n");
  // Computing in f32, the device leaves a rounding to F16 and back out.
  equals_reference("",
                   kX + "  %1 = convert(%0; dtype=\"f16\") \"h\" : f16[S,64]\n"
                        "  %2 = convert(%1; dtype=\"f32\") \"y\" : f32[S,64]\n  return y=%2\n",
                   5e-4);
  equals_reference("", kX + "  %1 = convert(%0; dtype=\"i32\") \"i\" : i32[S,64]\n"
                            "  %2 = convert(%1; dtype=\"f32\") \"y\" : f32[S,64]\n  return y=%2\n");
}

TEST_F(WithOpenVinoLowering, of_sums_products_and_rows_of_tables) {
  for (const char* op : {"reduce_sum", "reduce_max"})
    equals_reference("", fmt::format("{}  %1 = {}(%0; axis=-1) \"y\" : f32[S,1]\n  return y=%1\n", kX, op));
  equals_reference("",
                   "  %0 = input \"a\" : f32[4,6,16]\n  %1 = input \"b\" : f32[4,9,16]\n"
                   "  %2 = matmul(%0, %1; transpose_b=1) \"s\" : f32[4,6,9]\n"
                   "  %3 = matmul(%2, %1; transpose_b=0) \"y\" : f32[4,6,16]\n  return y=%3\n");
  equals_reference("weight w [9,64] f32 embedding\n",
                   "  %0 = input \"ids\" : i32[S]\n  %1 = weight \"w\" : f32[9,64]\n"
                   "  %2 = embed_rows(%0, %1) \"y\" : f32[S,64]\n  return y=%2\n");
}

TEST_F(WithOpenVinoLowering, of_norms_rotations_gates_and_caps) {
  const std::string w = "weight w [64] f32 vector\nweight bb [64] f32 vector\n",
                    use = kX + "  %1 = weight \"w\" : f32[64]\n  %2 = weight \"bb\" : f32[64]\n";
  equals_reference(w, use + "  %3 = rms_norm(%0, %1; eps=1e-05) \"y\" : f32[S,64]\n  return y=%3\n");
  equals_reference(w, use + "  %3 = layer_norm(%0, %1, %2; eps=1e-05) \"y\" : f32[S,64]\n  return y=%3\n");
  equals_reference("",
                   "  %0 = input \"x\" : f32[S,4,20]\n  %1 = input \"c\" : f32[S,8]\n  %2 = input \"s\" : f32[S,8]\n"
                   "  %3 = rope(%0, %1, %2) \"y\" : f32[S,4,20]\n  return y=%3\n");
  for (const char* kind : {"silu", "gelu_tanh", "gelu", "sigmoid", "relu", "softplus"})
    equals_reference("",
                     fmt::format("{}  %1 = input \"up\" : f32[S,64]\n"
                                 "  %2 = gated(%0, %1; activation=\"{}\") \"y\" : f32[S,64]\n  return y=%2\n",
                                 kX, kind),
                     1e-5);
  // A last bit before the rounding is one code of 127.
  equals_reference("", kX + "  %1 = quantize(%0; group=32) \"y\" : q8g32[S,64]\n  return y=%1\n", 1e-2);
  equals_reference("", kX + "  %1 = soft_cap(%0; cap=3.0) \"y\" : f32[S,64]\n  return y=%1\n", 1e-5);
}

// By two dense matrices here, by stages of sums there.
TEST_F(WithOpenVinoLowering, of_rotated_rows) {
  for (const char* how : {"block=16", "block=32", "block=64", "block=16, inverse=1"})
    equals_reference("weight s [64] f32 vector\n", kX + "  %1 = weight \"s\" : f32[64]\n  %2 = hadamard(%0, %1; " +
                                                       how + ") \"y\" : f32[S,64]\n  return y=%2\n");
}

TEST_F(WithOpenVinoLowering, of_products_with_a_bias) {
  equals_reference("weight w [48,64] f32 matrix\nweight bb [48] f32 vector\n",
                   kX + "  %1 = weight \"w\" : f32[48,64]\n  %2 = weight \"bb\" : f32[48]\n"
                        "  %3 = linear(%0, %1, %2) \"y\" : f32[S,48]\n  return y=%3\n");
}

// Every format that the table calls native here: one product over the codes, as they are.
TEST_F(WithOpenVinoLowering, of_products_with_weights_of_every_format) {
  for (const FormatInfo& format : all_formats()) {
    if (support(format.format, "openvino:CPU") != Support::native) continue;
    const Program p = program_of(fmt::format("weight w [32,256] {} matrix\n", format.name), kLinear);
    for (const auto& [fixed, rows] : {std::pair<int64_t, int64_t>{1, 1}, {5, 5}, {kRows, 3}}) {
      const std::string what = fmt::format("{}, {} rows", format.name, fixed);
      const auto primitive = decompose(p, p.functions[0], {.rows = fixed});
      ASSERT_TRUE(primitive);
      auto constants = Constants::create({});
      ASSERT_TRUE(constants);
      const WeightSet weights = drawn_weights(p);
      const auto ir = lower(*primitive, weights, *constants, "openvino:CPU");
      ASSERT_TRUE(ir) << what << ": " << ir.error().message;
      const Inputs inputs = drawn_inputs(*primitive, rows);
      const auto ran = run(*ir, *constants, inputs, rows);
      ASSERT_TRUE(ran) << what << ": " << ran.error().message;
      // NF4's true levels here, the CPU target's rounded ones in the reference (docs/arithmetic.md).
      const double bound = format.codebook == Codebook::nf4 ? 1e-2 : 2e-6;
      expect_close(ran->y, expected(p, *primitive, inputs, rows), bound, what);
      expect_codes_stay(ran->profile, !format.plain(), what);
    }
  }
}

}  // namespace
}  // namespace onw::openvino
