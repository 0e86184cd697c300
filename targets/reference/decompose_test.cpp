// Every coarse op equals its primitives, computed by the same interpreter.
#include "passes/decompose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "graph/builder.h"
#include "graph/ops.h"
#include "graph/text.h"
#include "graph/verifier.h"
#include "targets/reference/interpreter.h"
#include "targets/reference/kv_cache.h"

namespace onw::reference {
namespace {

constexpr int64_t kRowsHere = 5;

Tensor random_tensor(const Type& type, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor t = make_tensor(type, kRowsHere);
  for (float& x : t.f) x = normal(random);
  if (type.dtype == DType::i32)
    for (float& x : t.f) x = std::floor(std::fabs(x));
  return t;
}

// Weights of any declared shape, drawn from their names.
WeightSet drawn(const Program& program) {
  auto values = std::make_shared<std::map<std::string, std::vector<float>, std::less<>>>();
  for (const WeightDecl& w : program.weights)
    (*values)[w.name] =
        random_tensor({DType::f32, w.shape, 0}, static_cast<uint32_t>(std::hash<std::string>{}(w.name))).f;
  return {[values, &program](std::string_view name) -> Result<WeightView> {
            const WeightDecl* w = program.weight(name);
            const auto found = values->find(name);
            if (w == nullptr || found == values->end()) return error(Code::missing_tensor, "no '{}'", name);
            WeightView view;
            view.outputs = w->shape[0];
            view.inputs = w->shape.size() > 1 ? w->shape[1] : 1;
            view.codes = std::as_bytes(std::span(found->second));
            return view;
          },
          values};
}

struct Subject {
  Program program;
  Function coarse, primitive;
  Inputs given;  // both take these; attention's cache aside
  KvCache* cache = nullptr;
  int64_t cached = 0;
};

Result<Inputs> run(const Subject& r, const Function& f, Inputs inputs, std::span<const Row> rows) {
  const WeightSet weights = drawn(r.program);
  const Step step{.rows = rows};
  const Context c{
      .program = r.program, .weights = weights, .step = &step, .rows = kRowsHere, .cache = [&](int, int) -> KvCache& {
        return *r.cache;
      }};
  return run_function(f, std::move(inputs), c, CancelToken(), false);
}

void expect_close(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.f.size(), b.f.size()) << what;
  float most = 0, off = 0;
  for (size_t i = 0; i < a.f.size(); ++i) {
    most = std::max(most, std::fabs(a.f[i]));
    off = std::max(off, std::fabs(a.f[i] - b.f[i]));
  }
  EXPECT_LE(off, 2e-6f * most) << what;
  EXPECT_GT(most, 0) << what << ": a test on zeros says nothing";
}

// `text` is the body of a function; weights and states stand in `head`.
void coarse_equals_primitives(const std::string& head, const std::string& body) {
  const auto program =
      parse_program("program p layers=1 hidden=64 vocabulary=9 max_context=8 embedding=e embedding_scale=1\n" + head +
                    "f {\n" + body + "}\n");
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_TRUE(verify(*program)) << verify(*program).error().message;
  const auto primitive = decompose(*program, program->functions[0], {.rows = kRowsHere, .cache_tokens = 0});
  ASSERT_TRUE(primitive) << primitive.error().message;
  const auto fine = verify(*primitive, *program, Level::primitive);
  EXPECT_TRUE(fine) << fine.error().message;
  Subject r{.program = *program};
  Inputs inputs;
  for (const Node& n : program->functions[0].nodes)
    if (n.op == Op::input) inputs[n.label] = random_tensor(n.type, static_cast<uint32_t>(n.label.size() + 7));
  const auto a = run(r, program->functions[0], inputs, {}), b = run(r, *primitive, inputs, {});
  ASSERT_TRUE(a) << a.error().message;
  ASSERT_TRUE(b) << b.error().message;
  expect_close(a->at("y"), b->at("y"), body);
}

const std::string kX = "  %0 = input \"x\" : f32[S,64]\n";

TEST(Decompose, linear_with_and_without_bias) {
  coarse_equals_primitives("weight w [48,64] f32 matrix\nweight b [48] f32 vector\n",
                           kX + "  %1 = weight \"w\" : f32[48,64]\n  %2 = weight \"b\" : f32[48]\n"
                                "  %3 = linear(%0, %1, %2) \"y\" : f32[S,48]\n  return y=%3\n");
  coarse_equals_primitives(
      "weight w [48,64] f32 matrix\n",
      kX + "  %1 = weight \"w\" : f32[48,64]\n  %2 = linear(%0, %1) \"y\" : f32[S,48]\n  return y=%2\n");
  coarse_equals_primitives(
      "weight w [64,64] f32 matrix\n",
      kX + "  %1 = weight \"w\" : f32[64,64]\n  %2 = linear_add(%0, %0, %1) \"y\" : f32[S,64]\n  return y=%2\n");
}

TEST(Decompose, norms) {
  const std::string w = "weight w [64] f32 vector\nweight b [64] f32 vector\n",
                    use = kX + "  %1 = weight \"w\" : f32[64]\n  %2 = weight \"b\" : f32[64]\n";
  coarse_equals_primitives(w, use + "  %3 = rms_norm(%0, %1; eps=1e-05) \"y\" : f32[S,64]\n  return y=%3\n");
  coarse_equals_primitives(w, use + "  %3 = layer_norm(%0, %1, %2; eps=1e-05) \"y\" : f32[S,64]\n  return y=%3\n");
  coarse_equals_primitives("", kX + "  %1 = rms_norm(%0; eps=1e-05) \"y\" : f32[S,64]\n  return y=%1\n");
  coarse_equals_primitives("", kX + "  %1 = l2_norm(%0; eps=1e-06) \"y\" : f32[S,64]\n  return y=%1\n");
}

TEST(Decompose, rope_whole_and_partial) {
  const std::string tables = "  %1 = input \"cosine\" : f32[S,8]\n  %2 = input \"sine\" : f32[S,8]\n";
  for (const char* d : {"16", "20"})
    coarse_equals_primitives(
        "", fmt::format(
                "  %0 = input \"x\" : f32[S,4,{0}]\n{1}  %3 = rope(%0, %1, %2) \"y\" : f32[S,4,{0}]\n  return y=%3\n",
                d, tables));
}

TEST(Decompose, activations) {
  for (const char* kind : {"silu", "gelu_tanh", "gelu", "sigmoid", "relu", "softplus"}) {
    coarse_equals_primitives(
        "", fmt::format("{}  %1 = activate(%0; activation=\"{}\") \"y\" : f32[S,64]\n  return y=%1\n", kX, kind));
    coarse_equals_primitives("", fmt::format("{}  %1 = input \"up\" : f32[S,64]\n  %2 = gated(%0, %1; "
                                             "activation=\"{}\") \"y\" : f32[S,64]\n  return y=%2\n",
                                             kX, kind));
  }
  coarse_equals_primitives("",
                           kX + "  %1 = input \"up\" : f32[S,64]\n  %2 = gated(%0, %1; activation=\"swiglu_clamped\", "
                                "limit=0.7, alpha=1.702) \"y\" : f32[S,64]\n  return y=%2\n");
}

TEST(Decompose, scale_soft_cap_and_plain_arithmetic) {
  coarse_equals_primitives(
      "", kX + "  %1 = scale(%0; by=0.37) \"s\" : f32[S,64]\n  %2 = soft_cap(%1; cap=3.0) \"c\" : f32[S,64]\n"
               "  %3 = multiply(%2, %0) \"m\" : f32[S,64]\n  %4 = add(%3, %0) \"a\" : f32[S,64]\n"
               "  %5 = slice(%4; axis=1, begin=8, end=40) \"i\" : f32[S,32]\n  %6 = reshape(%5; shape=[S,4,8]) \"y\" : "
               "f32[S,4,8]\n  return y=%6\n");
}

TEST(Decompose, embedding_rows) {
  coarse_equals_primitives("weight w [9,64] f32 embedding\n",
                           "  %0 = input \"ids\" : i32[S]\n  %1 = weight \"w\" : f32[9,64]\n  %2 = embed_rows(%0, %1) "
                           "\"y\" : f32[S,64]\n  return y=%2\n");
}

// The coarse op writes its rows behind `cached` older ones; the primitives take those as inputs.
void attention_equals_primitives(int64_t cached, int64_t window, bool sinks, double cap) {
  const std::string options = fmt::format("{}{}", window > 0 ? fmt::format(", window={}", window) : "",
                                          cap > 0 ? fmt::format(", soft_cap={:.1f}", cap) : "");
  const std::string text = fmt::format(
      "program p layers=1 hidden=64 vocabulary=9 max_context=99 embedding=e embedding_scale=1\nweight s [4] f32 "
      "vector\n"
      "state kv.0 kv layer=0 heads=2 head_dim=16 value_dim=16 window={}\nf {{\n  %0 = input \"q\" : f32[S,4,16]\n  %1 "
      "= input \"key\" : f32[S,2,16]\n"
      "  %2 = input \"value\" : f32[S,2,16]\n  %3 = weight \"s\" : f32[4]\n  %4 = kv_write(%1, %2; state=\"kv.0\") "
      "\"w\" : none\n"
      "  %5 = attention(%0{}; state=\"kv.0\", scale=0.3{}) \"y\" : f32[S,4,16]\n  return y=%5\n}}\n",
      window, sinks ? ", %3" : "", options);
  const auto program = parse_program(text);
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_TRUE(verify(*program)) << verify(*program).error().message;
  const auto primitive = decompose(*program, program->functions[0], {.rows = kRowsHere, .cache_tokens = cached});
  ASSERT_TRUE(primitive) << primitive.error().message;
  EXPECT_TRUE(verify(*primitive, *program, Level::primitive));

  KvCache cache(program->states[0], KvFormat::f32);
  const Tensor k = random_tensor({DType::f32, {2, cached, 16}, 0}, 1),
               v = random_tensor({DType::f32, {2, cached, 16}, 0}, 2);
  for (int64_t p = 0; p < cached; ++p) {
    std::vector<float> kp, vp;
    for (int64_t h = 0; h < 2; ++h) {
      kp.insert(kp.end(), k.f.begin() + (h * cached + p) * 16, k.f.begin() + (h * cached + p + 1) * 16);
      vp.insert(vp.end(), v.f.begin() + (h * cached + p) * 16, v.f.begin() + (h * cached + p + 1) * 16);
    }
    cache.write(p, kp, vp);
  }
  std::vector<Row> rows;
  for (int64_t r = 0; r < kRowsHere; ++r) rows.push_back(text_row(0, cached + r, 0, false));
  Subject subject{.program = *program, .cache = &cache};
  Inputs inputs;
  for (const char* name : {"q", "key", "value"})
    inputs[name] =
        random_tensor(program->functions[0].nodes[name[0] == 'q' ? 0 : 1].type, static_cast<uint32_t>(name[0]));
  const auto a = run(subject, program->functions[0], inputs, rows);
  ASSERT_TRUE(a) << a.error().message;

  Tensor mask = make_tensor({DType::f32, {kRowsHere, cached + kRowsHere}, 0}, 0);
  for (int64_t r = 0; r < kRowsHere; ++r)
    for (int64_t p = 0; p < cached + kRowsHere; ++p)
      if (p > cached + r || (window > 0 && p + window <= cached + r)) mask.row(r)[static_cast<size_t>(p)] = -1e30f;
  inputs["kv.0.mask"] = mask;
  if (cached > 0) inputs["kv.0.k"] = k, inputs["kv.0.v"] = v;
  const auto b = run(subject, *primitive, inputs, rows);
  ASSERT_TRUE(b) << b.error().message;
  expect_close(a->at("y"), b->at("y"), text);
  EXPECT_EQ(b->at("kv.0.k_new").type.shape, (Shape{2, kRowsHere, 16}));
}

TEST(Decompose, layers_that_read_one_cache_have_its_inputs_once) {
  const auto program = parse_program(
      "program p layers=2 hidden=64 vocabulary=9 max_context=99 embedding=e embedding_scale=1\n"
      "state kv.0 kv layer=0 heads=2 head_dim=16 value_dim=16\nf {\n  %0 = input \"q\" : f32[S,4,16]\n"
      "  %1 = input \"key\" : f32[S,2,16]\n  %2 = kv_write(%1, %1; state=\"kv.0\") \"w\" : none\n"
      "  %3 = attention(%0; state=\"kv.0\", scale=1.0) \"a\" : f32[S,4,16]\n"
      "  %4 = attention(%3; state=\"kv.0\", scale=1.0) \"y\" : f32[S,4,16]\n  return y=%4\n}\n");
  ASSERT_TRUE(program) << program.error().message;
  const auto primitive = decompose(*program, program->functions[0], {.rows = kRowsHere, .cache_tokens = 7});
  ASSERT_TRUE(primitive) << primitive.error().message;
  std::vector<std::string> inputs;
  for (const Node& n : primitive->nodes)
    if (n.op == Op::input) inputs.push_back(n.label);
  std::ranges::sort(inputs);
  EXPECT_EQ(inputs, (std::vector<std::string>{"key", "kv.0.k", "kv.0.mask", "kv.0.v", "q"}));
}

TEST(Decompose, attention_over_a_cache) {
  attention_equals_primitives(0, 0, false, 0);
  attention_equals_primitives(7, 0, false, 0);
  attention_equals_primitives(7, 4, false, 0);
  attention_equals_primitives(7, 0, true, 0);
  attention_equals_primitives(300, 0, true, 2.5);
}

// A function whose result `y` is quantised: the codes times their scales are what the primitives give. The first group
// of x is of zeros.
void codes_equal_primitives(const std::string& head, const std::string& body, float bound) {
  const auto program =
      parse_program("program p layers=1 hidden=64 vocabulary=9 max_context=8 embedding=e embedding_scale=1\n" + head +
                    "f {\n" + body + "}\n");
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_TRUE(verify(*program)) << verify(*program).error().message;
  const auto primitive = decompose(*program, program->functions[0], {.rows = kRowsHere});
  ASSERT_TRUE(primitive) << primitive.error().message;
  Inputs inputs{{"x", random_tensor({DType::f32, {kRows, 64}, 0}, 5)}};
  for (int i = 0; i < 32; ++i) inputs["x"].f[static_cast<size_t>(i)] = 0;
  Subject r{.program = *program};
  const auto a = run(r, program->functions[0], inputs, {}), b = run(r, *primitive, inputs, {});
  ASSERT_TRUE(a && b);
  const QuantizedRows& q = a->at("y").q;
  float most = 0;
  for (int64_t row = 0; row < kRowsHere; ++row)
    for (int64_t k = 0; k < 64; ++k) {
      const int64_t at = k / 32 * q.row_stride + row;
      const float expected = b->at("y").row(row)[static_cast<size_t>(k)];
      EXPECT_NEAR(static_cast<float>(q.codes[at * 32 + k % 32]) * q.scales[at], expected, bound);
      most = std::max(most, std::fabs(expected));
    }
  EXPECT_GT(most, 100 * bound) << "a test on zeros says nothing";
}

TEST(Decompose, quantise_rounds_to_the_same_codes) {
  codes_equal_primitives("", kX + "  %1 = quantize(%0; group=32) \"y\" : q8g32[S,64]\n  return y=%1\n", 1e-6f);
}

TEST(Decompose, gate_and_up_by_one_product_are_quantised_after_it) {
  const std::string head = "weight w [128,64] f32 matrix\nweight b [128] f32 vector\n",
                    weights = kX + "  %1 = weight \"w\" : f32[128,64]\n  %2 = weight \"b\" : f32[128]\n";
  for (const char* operands : {"%0, %1", "%0, %1, %2"})
    codes_equal_primitives(head,
                           fmt::format("{}  %3 = linear_gated_quantize({}; activation=\"silu\", group=32) \"y\" : "
                                       "q8g32[S,64]\n  return y=%3\n",
                                       weights, operands),
                           2e-5f);
}

TEST(Decompose, says_which_step_has_no_primitive_form_yet) {
  const auto program = parse_program(
      "program p layers=1 hidden=64 vocabulary=9 max_context=8 embedding=e embedding_scale=1\nweight w [64] f32 "
      "vector\nf {\n" +
      kX + "  %1 = weight \"w\" : f32[64]\n  %2 = pool(%0) \"L03/pool\" : f32[S,64]\n  return y=%2\n}\n");
  ASSERT_TRUE(program);
  const auto primitive = decompose(*program, program->functions[0], {.rows = 1});
  ASSERT_FALSE(primitive);
  EXPECT_NE(primitive.error().message.find("L03/pool"), std::string::npos);
}

}  // namespace
}  // namespace onw::reference
