#include "runtime/measured_steps.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_folder.h"
#include "runtime/testing/engine_driver.h"

namespace onw {
namespace {

TEST(MeasuredSteps, are_found_again_by_model_device_and_threads_only) {
  const std::filesystem::path cache = "cache";
  const ThreadPlan four{.threads = 4}, two{.threads = 2};
  const auto file = step_table_file(cache, "a", "CPU", Isa::avx2, four);
  EXPECT_EQ(file, step_table_file(cache, "a", "CPU", Isa::avx2, four));
  EXPECT_NE(file, step_table_file(cache, "b", "CPU", Isa::avx2, four));
  EXPECT_NE(file, step_table_file(cache, "a", "NPU", Isa::avx2, four));
  EXPECT_NE(file, step_table_file(cache, "a", "CPU", Isa::generic, four));
  EXPECT_NE(file, step_table_file(cache, "a", "CPU", Isa::avx2, two));
}

TEST(MeasuredSteps, are_read_as_they_were_written_and_anew_where_the_file_is_damaged) {
  const TempFolder cache;
  StepCosts::Table table{};
  table[1] = 0.25;
  table[64] = 1.5;
  const auto file = cache.path() / "steps" / "some.json";
  write_step_table(file, table);
  EXPECT_EQ(read_step_table(file), table);
  std::string many = R"({"measured": [0)";
  for (int i = 1; i <= StepCosts::kMostRows; ++i) many += R"(, "x")";
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string(R"({"measured": [1, 2]})"), many + "]}"}) {
    std::ofstream(file) << text;
    EXPECT_EQ(read_step_table(file), StepCosts::Table{}) << text;
  }
  write_step_table("/proc/none/steps.json", table);  // costs a measurement, and nothing else
}

TEST(MeasuredSteps, an_engine_writes_them_when_it_ends) {
  const TempFolder cache;
  const auto file = cache.path() / "steps" / "some.json";
  {
    const auto engine = testing::fake_engine({}, {.step_table = file});
    testing::answer(*engine, {.prompt = {1, 2}, .max_tokens = 60});
    EXPECT_EQ(read_step_table(file)[1], 0);
  }
  EXPECT_GT(read_step_table(file)[1], 0);
}

}  // namespace
}  // namespace onw
