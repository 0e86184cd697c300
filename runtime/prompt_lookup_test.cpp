#include "runtime/prompt_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/testing/random.h"

namespace onw {
namespace {

using onw::testing::Random;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<TokenKey> keys(const std::vector<int32_t>& tokens) { return text_keys(tokens); }

TEST(PromptLookup, goes_on_as_the_latest_of_the_longest_matches_did) {
  PromptLookup lookup;
  EXPECT_THAT(lookup.propose(keys({1, 2, 3, 10, 9, 1, 2, 3, 20, 9, 2, 3, 30, 9, 1, 2, 3}), 2).tokens,
              ElementsAre(20, 9));
}

TEST(PromptLookup, one_equal_token_is_no_match) {
  PromptLookup lookup;
  EXPECT_THAT(lookup.propose(keys({5, 6, 7, 5}), 4).tokens, IsEmpty());
  EXPECT_THAT(lookup.propose(keys({5, 6, 7, 5, 6}), 2).tokens, ElementsAre(7, 5));
}

TEST(PromptLookup, a_match_that_reaches_the_end_repeats_itself) {
  PromptLookup lookup;
  EXPECT_THAT(lookup.propose(keys({1, 2, 3, 1, 2, 3}), 7).tokens, ElementsAre(1, 2, 3, 1, 2, 3, 1));
  PromptLookup same;
  EXPECT_THAT(same.propose(keys({4, 4, 4}), 3).tokens, ElementsAre(4, 4, 4));
}

TEST(PromptLookup, a_longer_match_is_surer) {
  int before = -1;
  double chance = 0;
  for (const size_t length : {2U, 3U, 6U, 10U, 20U}) {
    std::vector<int32_t> text;
    for (int twice = 0; twice < 2; ++twice) {
      text.push_back(1000 + twice);
      for (size_t i = 0; i < length; ++i) text.push_back(static_cast<int32_t>(i));
    }
    text.insert(text.begin() + 1 + static_cast<std::ptrdiff_t>(length), 500);
    PromptLookup lookup;
    const Draft draft = lookup.propose(keys(text), 1);
    EXPECT_THAT(draft.tokens, ElementsAre(500));
    EXPECT_GT(draft.grade, before);
    EXPECT_GT(draft.chance, chance);
    EXPECT_LT(draft.grade, lookup.grades());
    before = draft.grade;
    chance = draft.chance;
  }
}

TEST(PromptLookup, asked_now_and_then_says_the_same_as_one_that_sees_all_at_once) {
  Random random(5);
  const auto text = keys(random.tokens(400, 3));
  PromptLookup step_by_step;
  for (size_t n = 1; n <= text.size(); n += static_cast<size_t>(1 + random.below(9))) {
    PromptLookup at_once;
    const auto so_far = std::span(text).first(n);
    ASSERT_EQ(step_by_step.propose(so_far, 5).tokens, at_once.propose(so_far, 5).tokens) << n;
  }
}

TEST(PromptLookup, memory_stays_bounded_and_what_was_said_lately_is_still_found) {
  LookupText text(1000);
  Random random(6);
  int64_t most = 0;
  for (const int32_t token : random.tokens(20000, 50)) {
    text.append(token);
    most = std::max(most, text.bytes());
  }
  EXPECT_LE(text.automaton().length(), 1000);
  EXPECT_LE(most, 1000 * 250);
  EXPECT_GT(text.generation(), 0U);

  PromptLookup lookup({}, 100);
  std::vector<int32_t> long_text = random.tokens(5000, 50);
  const std::vector<int32_t> lately = {901, 902, 903, 904};
  long_text.insert(long_text.end(), lately.begin(), lately.end());
  for (int i = 0; i < 40; ++i) long_text.push_back(i);
  long_text.insert(long_text.end(), {901, 902});
  EXPECT_THAT(lookup.propose(keys(long_text), 2).tokens, ElementsAre(903, 904));
}

TEST(PromptLookup, earlier_conversations_help_where_they_know_more_and_do_not_run_together) {
  const auto earlier = std::make_shared<EarlierText>();
  earlier->add(keys({1, 2, 3, 4, 5}));
  earlier->add(keys({6, 7, 8}));
  PromptLookup lookup(earlier);
  EXPECT_THAT(lookup.propose(keys({9, 2, 3}), 9).tokens, ElementsAre(4, 5));  // not on into the next conversation
  EXPECT_THAT(lookup.propose(keys({9, 2, 3, 4, 5, 6, 7}), 9).tokens, ElementsAre(8));
  PromptLookup alone;
  EXPECT_THAT(alone.propose(keys({9, 2, 3}), 9).tokens, IsEmpty());
  PromptLookup own_words(earlier);
  EXPECT_THAT(own_words.propose(keys({2, 3, 70, 2, 3}), 1).tokens, ElementsAre(70));
}

TEST(PromptLookup, an_earlier_text_may_lose_its_older_half_at_any_time) {
  Random random(7);
  const auto earlier = std::make_shared<EarlierText>(60);
  PromptLookup lookup(earlier);
  std::vector<int32_t> conversation;
  for (int round = 0; round < 200; ++round) {
    earlier->add(keys(random.tokens(random.below(25), 4)));
    for (const int32_t token : random.tokens(random.below(4), 4)) conversation.push_back(token);
    for (const int32_t token : lookup.propose(keys(conversation), 6).tokens) {
      ASSERT_GE(token, 0);
      ASSERT_LT(token, 4);
    }
  }
}

}  // namespace
}  // namespace onw
