// Every rule of legalize_npu: with the NPU's arithmetic the plain form fails, and the rewritten one stays near FP32.
#include "passes/legalize_npu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <tuple>

#include "graph/ops.h"
#include "graph/text.h"
#include "graph/verifier.h"
#include "passes/decompose.h"
#include "targets/reference/interpreter.h"
#include "targets/reference/kv_cache.h"
#include "targets/reference/npu.h"

namespace onw::reference {
namespace {

const std::string kHead = "program p layers=1 hidden=8 vocabulary=9 max_context=8 embedding=e embedding_scale=1\n";

struct Results {
  Tensor exact, plain, rewritten;  // FP32, and both forms with the NPU's arithmetic
  Function function;               // the rewritten form
};

Tensor normal(Shape shape, float sigma, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(0, sigma);
  Tensor t = make_tensor({DType::f32, std::move(shape), 0}, 0);
  for (float& x : t.f) x = draw(random);
  return t;
}

Tensor codes(Shape shape, uint32_t seed, float bias) {
  Tensor t = normal(std::move(shape), 40, seed);
  for (float& x : t.f) x = std::clamp(std::nearbyint(x + bias), -127.0f, 127.0f);
  t.type.dtype = DType::i8;
  return t;
}

Results run(const std::string& text, const Inputs& inputs, const WeightSet& weights = {}, int64_t rows = 1) {
  Results out;
  const auto program = parse_program(kHead + text);
  EXPECT_TRUE(program) << program.error().message;
  if (!program) return out;
  const auto plain = decompose(*program, program->functions[0], {.rows = rows});
  EXPECT_TRUE(plain) << plain.error().message;
  if (!plain) return out;
  const auto legal = legalize_npu(*plain);
  EXPECT_TRUE(legal) << legal.error().message;
  if (!legal) return out;
  const auto fine = verify(*legal, *program, Level::primitive);
  EXPECT_TRUE(fine) << fine.error().message;
  const auto result = [&](const Function& f, bool npu) {
    auto y = run_function(f, inputs, {.program = *program, .weights = weights, .rows = rows, .npu = npu}, CancelToken(),
                          false);
    EXPECT_TRUE(y) << y.error().message;
    return y ? y->at("y") : Tensor{};
  };
  out = {result(*plain, false), result(*plain, true), result(*legal, true), *legal};
  // Without the NPU's arithmetic a rewriting changes next to nothing.
  const Tensor same = result(*legal, false);
  float most = 0;
  for (const float x : out.exact.f) most = std::max(most, std::fabs(x));
  for (size_t i = 0; i < same.f.size(); ++i) EXPECT_NEAR(same.f[i], out.exact.f[i], 1e-4f * most);
  return out;
}

// The largest difference over the largest value; infinite where something is not finite.
float error_of(const Tensor& y, const Tensor& exact) {
  float off = 0, most = 0;
  for (size_t i = 0; i < exact.f.size(); ++i) {
    if (!std::isfinite(y.f[i])) return INFINITY;
    off = std::max(off, std::fabs(y.f[i] - exact.f[i]));
    most = std::max(most, std::fabs(exact.f[i]));
  }
  return off / most;
}

WeightSet vectors(std::map<std::string, std::vector<float>, std::less<>> values) {
  const auto kept = std::make_shared<const decltype(values)>(std::move(values));
  return {[kept](std::string_view name) -> Result<WeightView> {
            const auto found = kept->find(name);
            if (found == kept->end()) return error(Code::missing_tensor, "no weight '{}'", name);
            WeightView view;
            view.outputs = static_cast<int64_t>(found->second.size()), view.inputs = 1;
            view.codes = std::as_bytes(std::span(found->second));
            return view;
          },
          kept};
}

Results norm_of(Tensor x, std::string_view op = "rms_norm", double eps = 1e-5) {
  const int64_t n = x.type.last(), rows = x.elements() / n;
  npu_round(x);  // what the input cannot hold is not the norm's loss
  const bool layer = op == "layer_norm";
  return run(
      fmt::format("{2}f {{\n  %0 = input \"x\" : f32[S,{0}]\n{3}  %{5} = {1}(%0{4}; eps={6}) \"y\" : f32[S,{0}]\n"
                  "  return y=%{5}\n}}\n",
                  n, op, layer ? fmt::format("weight w [{}] f32 vector\n", n) : "",
                  layer ? fmt::format("  %1 = weight \"w\" : f32[{}]\n", n) : "", layer ? ", %1" : "", layer ? 2 : 1,
                  eps),
      {{"x", std::move(x)}}, vectors({{"w", std::vector<float>(static_cast<size_t>(n), 1)}}), rows);
}

TEST(LegalizeNpu, squares_of_large_rows_overflow) {
  Tensor x = normal({1, 2880}, 30, 1);
  x.f[7] = 42000;  // a massive activation
  const Results r = norm_of(x);
  EXPECT_GT(error_of(r.plain, r.exact), 0.9f) << "a sum that is infinite makes a row of zeros";
  EXPECT_LT(error_of(r.rewritten, r.exact), 4e-3f);
}

TEST(LegalizeNpu, squares_of_small_rows_vanish) {
  for (const float sigma : {0.004f, 0.001f}) {
    const Results r = norm_of(normal({1, 2048}, sigma, 2));
    EXPECT_GT(error_of(r.plain, r.exact), 0.1f) << sigma;
    EXPECT_LT(error_of(r.rewritten, r.exact), 4e-3f) << sigma;
  }
}

TEST(LegalizeNpu, rows_between_and_of_zeros_stay_right) {
  for (const int64_t n : {8, 64, 576, 2560, 4096, 14336}) {
    const Results r = norm_of(normal({1, n}, 1, 3));
    EXPECT_LT(error_of(r.rewritten, r.exact), 4e-3f) << n;
  }
  const Results zeros = norm_of(make_tensor({DType::f32, {1, 64}, 0}, 0));
  for (const float y : zeros.rewritten.f) EXPECT_EQ(y, 0.0f);
}

// 131 x 128 has a prime factor that no group of at most 128 has: it is summed with zeros behind it.
TEST(LegalizeNpu, rows_of_any_width_are_summed_in_groups) {
  for (const int64_t n : {131, 262, 16768}) {
    const Results large = norm_of(normal({1, n}, 3000, 20)), small = norm_of(normal({1, n}, 0.002f, 21));
    EXPECT_GT(error_of(large.plain, large.exact), 0.9f) << n;
    EXPECT_LT(error_of(large.rewritten, large.exact), 4e-3f) << n;
    EXPECT_GT(error_of(small.plain, small.exact), 0.1f) << n;
    EXPECT_LT(error_of(small.rewritten, small.exact), 4e-3f) << n;
  }
}

TEST(LegalizeNpu, l2_norms_neither_overflow_nor_vanish) {
  for (const float sigma : {300.0f, 0.003f}) {
    const Results r = norm_of(normal({2, 128}, sigma, 22), "l2_norm", 1e-6);
    EXPECT_GT(error_of(r.plain, r.exact), 0.05f) << sigma;
    EXPECT_LT(error_of(r.rewritten, r.exact), 4e-3f) << sigma;
  }
  const Results even = norm_of(normal({2, 128}, 1, 23), "l2_norm", 1e-6);
  EXPECT_LT(error_of(even.rewritten, even.exact), 4e-3f);
}

// Sums of values, those of squares, and rows that stand far from zero.
TEST(LegalizeNpu, layer_norms_neither_overflow_nor_vanish) {
  Tensor far = normal({2, 2048}, 2, 24);
  for (float& x : far.f) x += 50;  // the sum is 102400
  for (const auto& [x, fails, bound] : {std::tuple(normal({2, 2048}, 300, 25), true, 4e-3f),
                                        {normal({2, 2048}, 0.002f, 26), true, 4e-3f},
                                        {far, true, 1e-2f},  // 25 deviations from zero: FP16 has lost as much already
                                        {normal({2, 768}, 1, 27), false, 4e-3f}}) {
    const Results r = norm_of(x, "layer_norm");
    if (fails) EXPECT_GT(error_of(r.plain, r.exact), 0.05f);
    EXPECT_LT(error_of(r.rewritten, r.exact), bound);
  }
  const Results level = norm_of(Tensor{.type = {DType::f32, {1, 64}, 0}, .f = std::vector<float>(64, 7)}, "layer_norm");
  for (const float y : level.rewritten.f) EXPECT_NEAR(y, 0, 1e-2f);
}

TEST(LegalizeNpu, products_of_run_time_values_go_in_parts_of_256_columns) {
  const Results r =
      run("f {\n  %0 = input \"p\" : f32[2,64]\n  %1 = input \"v\" : f32[64,600]\n  %2 = matmul(%0, %1) \"y\" : "
          "f32[2,600]\n"
          "  return y=%2\n}\n",
          {{"p", normal({2, 64}, 0.1f, 4)}, {"v", normal({64, 600}, 1, 5)}});
  EXPECT_TRUE(std::isinf(error_of(r.plain, r.exact)));
  EXPECT_LT(error_of(r.rewritten, r.exact), 2e-3f);
}

// Two thousand inputs of a few hundred with codes that lean one way: the sum is beyond 65504, the result is not.
TEST(LegalizeNpu, raw_codes_meet_rows_divided_by_their_largest_value) {
  Tensor x = normal({2, 2048}, 20, 6);
  for (float& v : x.f) v = std::fabs(v);
  const Results r = run(
      "f {\n  %0 = input \"x\" : f32[2,2048]\n  %1 = input \"k\" : i8[48,2048]\n  %2 = input \"scale\" : f32[1,48]\n"
      "  %3 = convert(%1; dtype=\"f32\") \"c\" : f32[48,2048]\n"
      "  %4 = matmul(%0, %3; transpose_b=1) \"m\" : f32[2,48]\n  %5 = multiply(%4, %2) \"y\" : f32[2,48]\n"
      "  return y=%5\n}\n",
      {{"x", x}, {"k", codes({48, 2048}, 7, 30)}, {"scale", normal({1, 48}, 0.002f, 8)}});
  EXPECT_GT(error_of(r.plain, r.exact), 0.3f);
  EXPECT_LT(error_of(r.rewritten, r.exact), 4e-3f);
}

// One position that most of the attention rests on, and 16383 others that make half of the result together: a constant
// that keeps the sum of so many codes below 65504 would make them zero.
TEST(LegalizeNpu, small_shares_beside_a_large_one_are_not_lost) {
  Tensor p = make_tensor({DType::f32, {1, 16384}, 0}, 0);
  std::fill(p.f.begin(), p.f.end(), 1e-3f);
  p.f[5] = 16;
  const Results r =
      run("f {\n  %0 = input \"p\" : f32[1,16384]\n  %1 = input \"v\" : i8[8,16384]\n"
          "  %2 = convert(%1; dtype=\"f32\") \"c\" : f32[8,16384]\n"
          "  %3 = matmul(%0, %2; transpose_b=1) \"y\" : f32[1,8]\n  return y=%3\n}\n",
          {{"p", p}, {"v", codes({8, 16384}, 12, 60)}});
  EXPECT_LT(error_of(r.rewritten, r.exact), 4e-3f);
}

// What attention would be without the host's tables: positions beyond 2048 are rounded, and the angle with them.
TEST(LegalizeNpu, angles_come_from_the_host) {
  EXPECT_GT(std::fabs(std::cos(npu_value(2049)) - std::cos(2049.0f)), 0.1f);
  EXPECT_NEAR(npu_value(std::cos(2049.0f)), std::cos(2049.0f), 1e-3f);
}

TEST(LegalizeNpu, a_row_that_sees_nothing_stays_finite) {
  Tensor scores = normal({2, 4}, 1, 9), mask = make_tensor({DType::f32, {2, 4}, 0}, 0);
  std::fill_n(scores.f.begin() + 4, 4, 0.0f);
  std::fill_n(mask.f.begin() + 2, 6, -1e30f);
  const Results r =
      run("f {\n  %0 = input \"s\" : f32[2,4]\n  %1 = input \"kv.0.mask\" : f32[2,4]\n  %2 = add(%0, %1) \"a\" : "
          "f32[2,4]\n  %3 = softmax(%2) \"y\" : f32[2,4]\n  return y=%3\n}\n",
          {{"s", scores}, {"kv.0.mask", mask}});
  EXPECT_TRUE(std::isinf(error_of(r.plain, r.exact)));
  EXPECT_LT(error_of(r.rewritten, r.exact), 2e-3f);
  EXPECT_EQ(r.rewritten.f[2], 0.0f);
}

// V transposed, as the caches keep it, and heads of 512 values.
TEST(LegalizeNpu, V_goes_in_parts_of_256_columns_however_it_lies) {
  for (const bool transposed : {false, true}) {
    const Shape v = transposed ? Shape{2, 512, 16} : Shape{2, 16, 512};
    const Results r =
        run(fmt::format(
                "f {{\n  %0 = input \"s\" : f32[2,3,16]\n  %1 = input \"v\" : f32[2,{},{}]\n"
                "  %2 = softmax(%0) \"p\" : f32[2,3,16]\n  %3 = matmul(%2, %1; transpose_b={}) \"y\" : f32[2,3,512]\n"
                "  return y=%3\n}}\n",
                v[1], v[2], transposed ? 1 : 0),
            {{"s", normal({2, 3, 16}, 1, 30)}, {"v", normal(v, 1, 31)}});
    EXPECT_TRUE(std::isinf(error_of(r.plain, r.exact)));
    EXPECT_LT(error_of(r.rewritten, r.exact), 2e-3f);
  }
}

TEST(LegalizeNpu, soft_caps_divide_before_the_product) {
  const auto values = std::make_shared<Tensor>(normal({48, 64}, 1, 10));
  const WeightSet weights{[values](std::string_view) -> Result<WeightView> {
                            WeightView view;
                            view.outputs = 48, view.inputs = 64, view.codes = std::as_bytes(std::span(values->f));
                            return view;
                          },
                          values};
  const Results r = run(
      "weight w [48,64] f32 matrix\nf {\n  %0 = input \"x\" : f32[S,64]\n  %1 = weight \"w\" : f32[48,64]\n"
      "  %2 = linear(%0, %1) \"l\" : f32[S,48]\n  %3 = soft_cap(%2; cap=30.0) \"y\" : f32[S,48]\n  return y=%3\n}\n",
      {{"x", normal({16, 64}, 3, 11)}}, weights, 16);
  EXPECT_TRUE(std::isinf(error_of(r.plain, r.exact)));
  EXPECT_LT(error_of(r.rewritten, r.exact), 2e-3f);
}

}  // namespace
}  // namespace onw::reference
