#include "targets/openvino/supported.h"

#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/ops.h"

namespace onw::openvino {
namespace {

TEST(OpenVinoSupported, refuses_recurrent_layers_by_name_with_the_device_that_takes_them) {
  Program p{.family = "small", .hidden = 8};
  Builder b(p, "body");
  const Value x = b.input("x", {DType::f32, {kRows, 8}});
  b.state({.name = "conv.0", .kind = StateKind::conv, .heads = 8, .kernel = 3});
  const Value w = b.weight({.name = "w", .shape = {8, 3}, .role = WeightRole::vector});
  b.output("hidden", b.node(Op::conv_update, "conv", {x, w}, {{"state", std::string("conv.0")}}));
  ASSERT_TRUE(b.finish());
  const auto taken = check_supported(p, "NPU");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Code::unsupported);
  EXPECT_EQ(
      taken.error().message,
      "models of the family small have layers with short convolutions, which run on the CPU so far, not on NPU: take "
      "--device CPU");
}

TEST(OpenVinoSupported, takes_the_rest) {
  Program p{.family = "small", .hidden = 8};
  Builder b(p, "body");
  const Value x = b.input("x", {DType::f32, {kRows, 8}});
  b.output("hidden", b.add("twice", x, x));
  ASSERT_TRUE(b.finish());
  EXPECT_TRUE(check_supported(p, "NPU"));
}

}  // namespace
}  // namespace onw::openvino
