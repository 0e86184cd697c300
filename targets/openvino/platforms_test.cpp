#include "targets/openvino/platforms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/runs_on.h"

namespace onw::openvino {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Platform& platform(std::string_view name) {
  const Platform* found = find_platform(name);
  EXPECT_NE(found, nullptr) << name;
  return *found;
}

TEST(OpenVinoPlatforms, each_has_its_column_in_the_table_of_formats) {
  for (const Platform& p : all_platforms()) {
    EXPECT_NE(support(WeightFormat::q4g128, p.formats), Support::refused) << p.name;
    EXPECT_TRUE(p.dynamic_rows || p.prompt_rows.back() > p.decode_rows) << p.name;
    if (p.requests > 0) EXPECT_LT(p.attention_requests, p.requests) << p.name;
  }
}

TEST(OpenVinoPlatforms, an_NPU_is_known_by_what_it_or_the_machine_says) {
  EXPECT_EQ(npu_platform("3720", "").name, "3720");
  EXPECT_EQ(npu_platform("NPU.4000", "").name, "4000");
  EXPECT_EQ(npu_platform("", "NPU generation 5010").name, "5010");
  EXPECT_EQ(npu_platform("6000", "an accelerator of Intel's, 0xffff").name, "5010");
}

TEST(ResidentPlan, a_small_model_keeps_every_request_and_attention_the_rest) {
  const auto plan = plan_resident(platform("4000"), {.segments = 9, .attentions = 8, .weight_bytes = 1'000'000});
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->block_rows, ElementsAre(1, 64));
  EXPECT_THAT(plan->resident_graphs, ElementsAre(10, 10));
  EXPECT_TRUE(plan->all_resident());
  EXPECT_EQ(plan->fused_variants, 4);
  EXPECT_EQ(plan->attention_requests, 8);
  EXPECT_EQ(plan->requests(), 32);
}

// 30 layers: 31 segments and the head, twice, are twice what the driver has.
TEST(ResidentPlan, a_deep_model_stays_within_the_budget_and_decoding_comes_first) {
  const auto plan = plan_resident(platform("4000"), {.segments = 31, .attentions = 30, .weight_bytes = 1'000'000});
  ASSERT_TRUE(plan);
  EXPECT_FALSE(plan->all_resident());
  EXPECT_LE(plan->requests(), 32);
  EXPECT_THAT(plan->resident_graphs, ElementsAre(21, 0));
  EXPECT_EQ(plan->attention_requests, 6);
}

TEST(ResidentPlan, for_every_depth_the_budget_holds) {
  for (const Platform& p : all_platforms())
    for (int layers = 1; layers < 120; ++layers) {
      const int64_t bytes = int64_t{layers} * 100'000'000;
      const auto plan = plan_resident(p, {.segments = layers + 1, .attentions = layers, .weight_bytes = bytes});
      ASSERT_TRUE(plan) << p.name;
      EXPECT_GE(plan->fused_layers * plan->fused_graphs, p.fuses ? layers : 0) << p.name;
      if (p.requests > 0) EXPECT_LE(plan->requests(), p.requests) << p.name << ", " << layers << " layers";
      EXPECT_TRUE(p.dynamic_rows || plan->attention_requests > 0) << p.name;
    }
}

TEST(ResidentPlan, experts_have_requests_of_their_own_where_the_platform_takes_them_at_run_time) {
  for (const Platform& p : all_platforms())
    for (int layers = 1; layers < 60; ++layers) {
      const auto plan = plan_resident(
          p, {.segments = 2 * layers + 1, .attentions = layers, .experts = layers, .weight_bytes = 1, .fused = false});
      ASSERT_TRUE(plan) << p.name;
      EXPECT_EQ(plan->expert_requests > 0, p.openvino == "NPU") << p.name;
      EXPECT_NE(plan->expert_requests, 1) << p.name << ": batches take two in turn";
      if (p.requests > 0) EXPECT_LE(plan->requests(), p.requests) << p.name << ", " << layers << " layers";
    }
  EXPECT_EQ(plan_resident(platform("4000"), {.segments = 9, .attentions = 8})->expert_requests, 0);
}

TEST(ResidentPlan, where_memory_holds_one_copy_one_number_of_rows_serves_both) {
  const Platform& p = platform("4000");
  const int64_t weights = 5'000'000'000;
  ModelShape model{.segments = 10, .attentions = 9, .weight_bytes = weights, .memory_bytes = 12'000'000'000};
  EXPECT_THAT(plan_resident(p, model)->block_rows, ElementsAre(1, 64));
  model.memory_bytes = 8'000'000'000;
  const auto plan = plan_resident(p, model);
  EXPECT_THAT(plan->block_rows, ElementsAre(16));
  EXPECT_EQ(plan->bytes, weights + p.work_bytes);
}

TEST(ResidentPlan, attention_goes_inside_where_half_of_what_is_left_holds_the_weights_once_more) {
  const Platform& p = platform("4000");
  ModelShape model{.segments = 33, .attentions = 32, .weight_bytes = 4'000'000'000, .memory_bytes = 18'000'000'000};
  const auto none = plan_resident(p, model);
  EXPECT_EQ(none->fused_variants, 0);
  model.memory_bytes = 28'000'000'000;
  const auto two = plan_resident(p, model);
  EXPECT_EQ(two->fused_variants, 2);
  EXPECT_EQ(two->fused_graphs, 3);  // of 1.57 GB at most
  EXPECT_EQ(two->fused_layers, 11);
  EXPECT_EQ(two->bytes, 2 * none->bytes);
  EXPECT_LE(two->requests(), p.requests);
  model.fused = false;
  EXPECT_EQ(plan_resident(p, model)->fused_variants, 0);
  EXPECT_EQ(plan_resident(platform("GPU"), {.attentions = 9, .weight_bytes = 9})->fused_variants, 0);
  EXPECT_GT(plan_resident(platform("GPU"), {.attentions = 9, .weight_bytes = 9, .fused = true})->fused_variants, 0);
}

// npu-078
TEST(ResidentPlan, what_does_not_fit_at_all_is_refused_with_the_numbers) {
  const auto plan =
      plan_resident(platform("3720"),
                    {.segments = 10, .attentions = 9, .weight_bytes = 5'000'000'000, .memory_bytes = 4'000'000'000});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::out_of_memory);
  EXPECT_THAT(plan.error().message, HasSubstr("need 5.60 GB"));
  EXPECT_THAT(plan.error().message, HasSubstr("4.00 GB are available"));
  EXPECT_THAT(plan.error().message, HasSubstr("--device CPU"));
}

TEST(ResidentPlan, OpenVINOs_CPU_device_has_one_graph_for_any_number_of_rows) {
  const auto plan = plan_resident(platform("openvino:CPU"), {.segments = 31, .attentions = 30, .weight_bytes = 1});
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->block_rows.empty());
  EXPECT_EQ(plan->requests(), 0);
}

}  // namespace
}  // namespace onw::openvino
