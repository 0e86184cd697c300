#include "runtime/measured_threads.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_folder.h"

namespace onw {
namespace {

using Choices = cpu::ThreadTable::Choices;

TEST(MeasuredThreads, are_found_again_by_model_and_threads_only) {
  const TempFolder cache;
  const ThreadPlan four{.threads = 4}, two{.threads = 2};
  MeasuredThreads(cache.path(), "a", Isa::avx2, four).write({2, 0, 4});
  EXPECT_EQ(MeasuredThreads(cache.path(), "a", Isa::avx2, four).read(), (Choices{2, 0, 4}));
  EXPECT_EQ(MeasuredThreads(cache.path(), "b", Isa::avx2, four).read(), Choices{});
  EXPECT_EQ(MeasuredThreads(cache.path(), "a", Isa::generic, four).read(), Choices{});
  EXPECT_EQ(MeasuredThreads(cache.path(), "a", Isa::avx2, two).read(), Choices{});
}

TEST(MeasuredThreads, are_measured_anew_where_the_file_is_damaged) {
  const TempFolder cache;
  const MeasuredThreads measured(cache.path(), "a", Isa::avx2, {.threads = 4});
  measured.write({1, 2, 3});
  for (const char* text : {"", "{", "[]", R"({"threads": [1, 2]})", R"({"threads": "many"})"}) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(cache.path()))
      if (file.is_regular_file()) std::ofstream(file.path()) << text;
    EXPECT_EQ(measured.read(), Choices{}) << text;
  }
}

TEST(MeasuredThreads, need_no_folder_that_can_be_written) {
  const MeasuredThreads measured("/proc/none", "a", Isa::avx2, {.threads = 4});
  measured.write({1, 2, 3});
  EXPECT_EQ(measured.read(), Choices{});
}

}  // namespace
}  // namespace onw
