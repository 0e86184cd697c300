#include "runtime/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/testing/fake_executable.h"

namespace onw {
namespace {

using onw::testing::FakeExecutable;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kPlenty = int64_t{1} << 40;

TEST(Context, the_default_is_the_least_of_the_models_what_memory_allows_and_32k) {
  const FakeExecutable small({.max_context = 2048});
  EXPECT_EQ(choose_context(small, 0, kPlenty)->tokens, 2048);
  EXPECT_EQ(choose_context(small, 0, kPlenty)->reason, "the model's");
  const FakeExecutable large({.max_context = 131072});
  EXPECT_EQ(choose_context(large, 0, kPlenty)->tokens, 32768);
  EXPECT_EQ(choose_context(large, 0, kPlenty)->reason, "the default");
  // 1,000 bytes of weights, 100 of work, 100 per token: 10 pages and a half
  EXPECT_EQ(choose_context(large, 0, 1100 + 100 * 2688)->tokens, 2560);
  EXPECT_EQ(choose_context(large, 0, 1100 + 100 * 2688)->reason, "what memory allows");
}

TEST(Context, as_asked_where_model_and_memory_allow_it) {
  const FakeExecutable executable({.max_context = 131072});
  EXPECT_EQ(choose_context(executable, 100000, kPlenty)->tokens, 100000);
  EXPECT_EQ(choose_context(executable, 7, 1100 + 700)->tokens, 7);  // to the byte, without a whole page
}

TEST(Context, more_than_the_model_has_is_refused) {
  const FakeExecutable executable({.max_context = 2048});
  EXPECT_EQ(choose_context(executable, 2049, kPlenty).error().code, Code::invalid_argument);
  EXPECT_THAT(choose_context(executable, 2049, kPlenty).error().message, HasSubstr("2048"));
  EXPECT_FALSE(choose_context(executable, -1, kPlenty));
}

TEST(Context, a_refusal_for_memory_says_what_is_needed_what_there_is_and_what_would_fit) {
  const FakeExecutable executable({.max_context = 131072, .bytes_per_token = 100000, .weights_bytes = 2000000000});
  const auto refused = choose_context(executable, 100000, 4000000000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::out_of_memory);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("100000 tokens"), HasSubstr("12.00 GB"), HasSubstr("4.00 GB"),
                                             HasSubstr("a context of 19968 would fit")));
  EXPECT_THAT(choose_context(executable, 0, 1000).error().message, HasSubstr("smaller model"));
}

}  // namespace
}  // namespace onw
