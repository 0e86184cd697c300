#include "store/cache_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/temp_folder.h"
#include "store/test_weights.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

CacheRequest request(std::atomic<int>& made, std::string digest = "d1") {
  return {.model = "tiny",
          .digest = std::move(digest),
          .units = small_units(Layout::tiles),
          .fill = [&made](WeightFileWriter& writer) {
            ++made;
            return write_units(writer, small_units(Layout::tiles), 5);
          }};
}

TEST(CacheStore, makes_an_entry_once_and_maps_it_afterwards) {
  TempFolder folder;
  std::atomic<int> made = 0;
  const CacheStore cache(folder / "cache");
  for (int i = 0; i < 3; ++i) {
    const auto file = cache.weights(request(made));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->weight("l.k")->layout, Layout::tiles);
    const auto expected = filled(file->weight("l.k")->codes.size(), 11);
    EXPECT_EQ(std::memcmp(file->weight("l.k")->codes.data(), expected.data(), expected.size()), 0);
  }
  EXPECT_EQ(made, 1);
  ASSERT_TRUE(cache.weights(request(made, "another model")));
  EXPECT_EQ(made, 2);
  EXPECT_EQ(cache.entries()->size(), 2u);
  EXPECT_EQ(cache.entries()->front().model, "tiny");
}

TEST(CacheStore, an_entry_whose_model_is_gone_is_of_no_use_until_a_copy_takes_it_over) {
  TempFolder folder;
  std::atomic<int> made = 0;
  const CacheStore cache(folder / "cache");
  CacheRequest first = request(made), copy = request(made);
  first.model_folder = folder / "first";
  copy.model_folder = folder / "copy";
  copy.model = "copy";
  for (const fs::path& model : {first.model_folder, copy.model_folder}) fs::create_directories(model);
  ASSERT_TRUE(cache.weights(first));
  ASSERT_TRUE(cache.weights(copy));
  EXPECT_EQ(cache.entries()->front().model_folder, first.model_folder);
  EXPECT_EQ(why_unused(cache.entries()->front()), "");
  fs::remove(first.model_folder);
  EXPECT_EQ(why_unused(cache.entries()->front()), "its model is gone");
  ASSERT_TRUE(cache.weights(copy));
  EXPECT_EQ(made, 1);
  EXPECT_EQ(why_unused(cache.entries()->front()), "");
  EXPECT_EQ(cache.entries()->front().model, "copy");
}

TEST(CacheStore, sessions_that_ask_at_once_share_one) {
  TempFolder folder;
  std::atomic<int> made = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] { EXPECT_TRUE(CacheStore(folder / "cache").weights(request(made))); });
  threads.clear();
  EXPECT_EQ(made, 1);
}

TEST(CacheStore, a_damaged_entry_is_made_again) {
  TempFolder folder;
  std::atomic<int> made = 0;
  const CacheStore cache(folder / "cache");
  ASSERT_TRUE(cache.weights(request(made)));
  const fs::path file = cache.entries()->front().file;
  fs::resize_file(file, fs::file_size(file) - 1);
  ASSERT_TRUE(cache.weights(request(made)));
  EXPECT_EQ(made, 2);
  {
    std::fstream middle(file, std::ios::in | std::ios::out | std::ios::binary);
    middle.seekp(static_cast<int64_t>(fs::file_size(file)) / 2);
    middle.put('!');
  }
  ASSERT_TRUE(cache.weights(request(made)));
  EXPECT_EQ(made, 3);
  fs::remove(fs::path(file).replace_extension(".json"));
  ASSERT_TRUE(cache.weights(request(made)));
  EXPECT_EQ(made, 4);
}

// kill -9 in the middle: no lock stays, no half entry is taken for a whole one.
TEST(CacheStore, a_killed_process_leaves_the_work_to_the_next) {
  TempFolder folder;
  std::atomic<int> made = 0;
  const CacheStore cache(folder / "cache");
  const pid_t child = fork();
  if (child == 0) {
    CacheRequest never = request(made);
    never.fill = [](WeightFileWriter& writer) -> Result<void> {
      RETURN_IF_ERROR(write_units(writer, small_units(Layout::tiles), 3));
      ::kill(::getpid(), SIGKILL);
      return {};
    };
    (void)cache.weights(never);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(cache.entries()->empty());
  EXPECT_TRUE(cache.weights(request(made)));
  EXPECT_EQ(made, 1);
}

TEST(CacheStore, keeps_to_its_cap_and_drops_what_was_used_longest_ago) {
  TempFolder folder;
  std::atomic<int> made = 0;
  const int64_t bytes = plan_weight_file(small_units(Layout::tiles)).file_bytes;
  const CacheStore cache(folder / "cache", 2 * bytes + 100);
  for (const char* digest : {"a", "b", "a", "c"}) {
    ASSERT_TRUE(cache.weights(request(made, digest)));
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
  }
  EXPECT_EQ(made, 3);
  EXPECT_EQ(cache.entries()->size(), 2u);
  ASSERT_TRUE(cache.weights(request(made, "a")));  // was used after b, so it stayed
  EXPECT_EQ(made, 3);
  ASSERT_TRUE(cache.weights(request(made, "b")));
  EXPECT_EQ(made, 4);
  EXPECT_EQ(*cache.prune(0), 2 * bytes);
  EXPECT_TRUE(cache.entries()->empty());
}

TEST(CacheStore, a_place_that_cannot_be_written_is_no_reason_to_fail) {
  std::atomic<int> made = 0;
  const auto file = CacheStore("/proc/no/such/place").weights(request(made));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(made, 1);
  const auto expected = filled(file->weight("l.q")->codes.size(), 10);
  EXPECT_EQ(std::memcmp(file->weight("l.q")->codes.data(), expected.data(), expected.size()), 0);
}

TEST(CacheStore, what_goes_wrong_in_making_an_entry_is_told) {
  TempFolder folder;
  std::atomic<int> made = 0;
  CacheRequest bad = request(made);
  bad.fill = [](WeightFileWriter&) -> Result<void> { return error(Code::cancelled, "stopped"); };
  EXPECT_EQ(CacheStore(folder / "cache").weights(bad).error().code, Code::cancelled);
  EXPECT_TRUE(CacheStore(folder / "cache").entries()->empty());
}

}  // namespace
}  // namespace onw
