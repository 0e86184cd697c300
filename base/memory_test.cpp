#include "base/memory.h"

#include <gtest/gtest.h>

namespace onw {
namespace {

TEST(AvailableMemory, is_some_and_less_than_any_machine_has) {
  EXPECT_GT(available_memory_bytes(), int64_t{64} << 20);
  EXPECT_LT(available_memory_bytes(), int64_t{1} << 50);
}

}  // namespace
}  // namespace onw
