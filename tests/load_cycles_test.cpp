// Opening and closing a model again and again leaves nothing behind: no memory, no descriptor, no thread.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/temp_folder.h"
#include "convert/convert.h"
#include "runtime/load.h"
#include "runtime/testing/engine_driver.h"
#include "tests/golden.h"
#include "tests/tiny_model.h"

namespace onw::testing {
namespace {

constexpr int kCycles = 200;
constexpr int kWarmUp = 50;
constexpr double kBytesPerCycle = 50e3;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kFreedMemoryIsKept = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kFreedMemoryIsKept = true;  // a sanitiser's quarantine
#else
constexpr bool kFreedMemoryIsKept = false;
#endif
#else
constexpr bool kFreedMemoryIsKept = false;
#endif

int64_t resident_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

int64_t entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

struct Held {
  int64_t bytes = resident_bytes();
  int64_t descriptors = entries("/proc/self/fd");
  int64_t threads = entries("/proc/self/task");
};

// platform/ui-160
TEST(LoadCycles, leave_no_memory_descriptor_or_thread_behind) {
  const TempFolder folder;
  const auto golden = read_golden(std::filesystem::path(ONW_SOURCE_DIR) / "tests/goldens/llama-g64.safetensors");
  ASSERT_TRUE(golden) << golden.error().message;
  ASSERT_TRUE(write_tiny_model(*golden, folder / "published"));
  ASSERT_TRUE(convert(folder / "published", folder / "model", {}));
  Held start;
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    if (cycle == kWarmUp) start = Held();
    auto engine = Engine::load(folder / "model", {.context_tokens = 64, .threads = 2});
    ASSERT_TRUE(engine) << engine.error().message;
    GenerateRequest request{.prompt = golden->ids, .max_tokens = 2};
    request.prompt.resize(4);
    ASSERT_EQ(answer(**engine, std::move(request)).tokens.size(), 2U);
  }
  const Held end;
  EXPECT_EQ(end.descriptors, start.descriptors);
  EXPECT_EQ(end.threads, start.threads);
  if (!kFreedMemoryIsKept)
    EXPECT_LT(static_cast<double>(end.bytes - start.bytes) / (kCycles - kWarmUp), kBytesPerCycle);
}

}  // namespace
}  // namespace onw::testing
