#include "base/result.h"

#include <gtest/gtest.h>

#include "base/checked.h"

namespace onw {
namespace {

Result<int> half_of(int n) {
  if (n % 2 != 0) return error(Code::invalid_argument, "{} is odd", n);
  return n / 2;
}

Result<int> quarter_of(int n) {
  const auto half = half_of(n);
  RETURN_IF_ERROR(half);
  return half_of(*half);
}

TEST(Result, carries_the_first_error_out) {
  EXPECT_EQ(*quarter_of(8), 2);
  EXPECT_EQ(quarter_of(6).error().message, "3 is odd");
  EXPECT_EQ(quarter_of(7).error().code, Code::invalid_argument);
}

TEST(Result, gains_context_on_the_way) {
  EXPECT_EQ(Result<void>(failure(half_of(3), "model.gguf")).error().message, "model.gguf: 3 is odd");
}

TEST(Checked, never_wraps) {
  EXPECT_FALSE(checked_add<uint64_t>(UINT64_MAX, 1));
  EXPECT_FALSE(checked_mul<uint64_t>(UINT64_MAX / 2, 3));
  EXPECT_FALSE(checked_align<uint64_t>(UINT64_MAX - 3, 32));
  EXPECT_FALSE(checked_add<int64_t>(INT64_MAX, 1));
  EXPECT_EQ(*checked_align<uint64_t>(33, 32), 64u);
  EXPECT_EQ(*checked_mul<uint64_t>(SIZE_MAX / 8, 8), SIZE_MAX / 8 * 8);
}

}  // namespace
}  // namespace onw
