#include "convert/convert_once.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "convert/test_models.h"
#include "store/model_folder.h"

namespace onw {
namespace {

namespace fs = std::filesystem;
using testing::write_tiny_folder;
using testing::write_tiny_gguf;

TEST(ConvertOnce, the_second_time_the_model_is_there) {
  TempFolder folder;
  const fs::path source = write_tiny_gguf(folder, "tiny.Q8_0.gguf", 8);
  int calls = 0;
  const auto count = [&](const ConvertProgress&) { return ++calls > 0; };
  const auto first = convert_once(source, folder / "models", {}, count);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(*first, folder / "models/tiny.Q8_0");
  EXPECT_GT(calls, 0);
  calls = 0;
  const auto second = convert_once(source, folder / "models", {}, count);
  ASSERT_TRUE(second);
  EXPECT_EQ(*second, *first);
  EXPECT_EQ(calls, 0);
}

TEST(ConvertOnce, a_changed_source_or_other_options_are_another_model) {
  TempFolder folder;
  const fs::path source = write_tiny_gguf(folder, "tiny.gguf", 8);
  const auto first = convert_once(source, folder / "models", {});
  const auto f32 = convert_once(source, folder / "models", {.format = WeightFormat::f32});
  ASSERT_TRUE(first && f32);
  EXPECT_NE(*first, *f32);
  EXPECT_EQ(ModelFolder::open(*f32)->weight("layers.0.attn.q")->format, WeightFormat::f32);
  fs::last_write_time(source, fs::file_time_type::clock::now() + std::chrono::hours(1));
  const auto newer = convert_once(source, folder / "models", {});
  ASSERT_TRUE(newer);
  EXPECT_NE(*newer, *first);
  EXPECT_EQ(*convert_once(source, folder / "models", {}), *newer);
}

TEST(ConvertOnce, many_at_once_make_it_once) {
  TempFolder folder;
  const fs::path source = write_tiny_folder(folder, "tiny hf");
  std::atomic<int> made = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      bool counted = false;
      const auto found = convert_once(source, folder / "models", {}, [&](const ConvertProgress&) {
        if (!std::exchange(counted, true)) ++made;
        return true;
      });
      EXPECT_TRUE(found) << found.error().message;
    });
  threads.clear();
  EXPECT_EQ(made, 1);
}

TEST(ConvertOnce, what_is_missing_is_named) {
  TempFolder folder;
  EXPECT_EQ(convert_once(folder / "absent.gguf", folder / "models", {}).error().code, Code::not_found);
}

TEST(ConvertOnce, a_converted_folder_without_engine_json_is_told_what_it_lacks) {
  TempFolder folder;
  write_tiny_folder(folder, "hf");
  ASSERT_TRUE(convert(folder / "hf", folder / "m", {}));
  fs::remove(folder / "m" / "engine.json");
  const auto made = convert_once(folder / "m", folder / "models", {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::not_found);
  EXPECT_NE(made.error().message.find("has weights.safetensors but no engine.json"), std::string::npos)
      << made.error().message;
}

}  // namespace
}  // namespace onw
