// NPU mode: FP16 after every primitive, no subnormals, sums of raw codes that stop at the largest FP16 number.
#include "targets/reference/npu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graph/text.h"
#include "graph/verifier.h"
#include "targets/reference/interpreter.h"
#include "targets/reference/kv_cache.h"

namespace onw::reference {
namespace {

Result<Inputs> run(const std::string& body, Inputs inputs, bool npu, int64_t rows = 1) {
  auto program = parse_program(
      "program p layers=1 hidden=4 vocabulary=9 max_context=8 embedding=e embedding_scale=1\nf {\n" + body + "}\n");
  RETURN_IF_ERROR(program);
  const WeightSet weights;
  return run_function(program->functions[0], std::move(inputs),
                      {.program = *program, .weights = weights, .rows = rows, .npu = npu}, CancelToken(), false);
}

Tensor tensor(Type type, std::vector<float> values) { return {.type = std::move(type), .f = std::move(values)}; }

TEST(NpuMode, keeps_fp16_without_subnormals) {
  EXPECT_EQ(npu_value(1.0f), 1.0f);
  EXPECT_EQ(npu_value(2049.0f), 2048.0f) << "eleven bits";
  EXPECT_EQ(npu_value(65504.0f), 65504.0f);
  EXPECT_EQ(npu_value(-70000.0f), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(npu_value(0x1p-14f), 0x1p-14f);
  EXPECT_EQ(npu_value(0x1p-15f), 0.0f);
  EXPECT_EQ(npu_value(0x1.fffp-15f), 0x1p-14f) << "rounds up to a normal number";
  EXPECT_TRUE(std::signbit(npu_value(-0x1p-15f)));
  EXPECT_TRUE(std::isnan(npu_value(std::nanf(""))));
}

TEST(NpuMode, rounds_after_every_primitive) {
  const std::string square = "  %0 = input \"x\" : f32[1,4]\n  %1 = multiply(%0, %0) \"y\" : f32[1,4]\n  return y=%1\n";
  const Tensor x = tensor({DType::f32, {1, 4}, 0}, {300, 0.007f, 3, 0.01f});
  const auto exact = run(square, {{"x", x}}, false), npu = run(square, {{"x", x}}, true);
  ASSERT_TRUE(exact) << exact.error().message;
  ASSERT_TRUE(npu) << npu.error().message;
  EXPECT_EQ(exact->at("y").f[0], 90000.0f);
  EXPECT_TRUE(std::isinf(npu->at("y").f[0]));
  EXPECT_GT(exact->at("y").f[1], 0.0f);
  EXPECT_EQ(npu->at("y").f[1], 0.0f);
  EXPECT_EQ(npu->at("y").f[2], 9.0f);
  EXPECT_NEAR(npu->at("y").f[3], 1e-4f, 1e-7f);
}

// 4 x 30000 x 127 is beyond FP16, with codes of run time it stops there, and with others it is infinite.
TEST(NpuMode, sums_of_run_time_codes_stop_at_the_largest_number) {
  const std::string codes =
      "  %0 = input \"x\" : f32[1,4]\n  %1 = input \"k\" : i8[2,4]\n  %2 = convert(%1; dtype=\"f32\") \"c\" : "
      "f32[2,4]\n"
      "  %3 = matmul(%0, %2; transpose_b=1) \"y\" : f32[1,2]\n  return y=%3\n";
  const std::string plain =
      "  %0 = input \"x\" : f32[1,4]\n  %1 = input \"k\" : f32[2,4]\n  %2 = matmul(%0, %1; transpose_b=1) \"y\" : "
      "f32[1,2]\n  return y=%2\n";
  const Tensor x = tensor({DType::f32, {1, 4}, 0}, {30000, 30000, 30000, 30000});
  const std::vector<float> k = {127, 127, 127, 127, 1, -1, 1, -1};
  const auto a = run(codes, {{"x", x}, {"k", tensor({DType::i8, {2, 4}, 0}, k)}}, true);
  const auto b = run(plain, {{"x", x}, {"k", tensor({DType::f32, {2, 4}, 0}, k)}}, true);
  ASSERT_TRUE(a) << a.error().message;
  ASSERT_TRUE(b) << b.error().message;
  EXPECT_EQ(a->at("y").f, (std::vector<float>{kHalfMax, 0}));
  EXPECT_TRUE(std::isinf(b->at("y").f[0]));
}

TEST(NpuMode, nothing_can_rest_on_columns_beyond_256_of_a_product_of_run_time_values) {
  const std::string product =
      "  %0 = input \"p\" : f32[1,4]\n  %1 = input \"v\" : f32[4,300]\n  %2 = matmul(%0, %1) \"y\" : f32[1,300]\n"
      "  return y=%2\n";
  const auto y = run(product,
                     {{"p", tensor({DType::f32, {1, 4}, 0}, std::vector<float>(4, 1))},
                      {"v", tensor({DType::f32, {4, 300}, 0}, std::vector<float>(1200, 1))}},
                     true);
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_EQ(y->at("y").f[255], 4.0f);
  EXPECT_TRUE(std::isnan(y->at("y").f[256]));
}

TEST(NpuMode, refuses_ops_that_are_no_primitives) {
  const auto y =
      run("  %0 = input \"x\" : f32[1,4]\n  %1 = rms_norm(%0; eps=1e-05) \"L00/norm\" : f32[1,4]\n  return y=%1\n",
          {{"x", tensor({DType::f32, {1, 4}, 0}, {1, 2, 3, 4})}}, true);
  ASSERT_FALSE(y);
  EXPECT_NE(y.error().message.find("L00/norm"), std::string::npos);
}

}  // namespace
}  // namespace onw::reference
