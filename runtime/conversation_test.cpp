#include "runtime/conversation.h"

#include <gtest/gtest.h>

#include <string>

#include "runtime/memory.h"
#include "runtime/prefix_cache.h"
#include "runtime/testing/fake_executable.h"
#include "runtime/testing/random.h"

namespace onw {
namespace {

using onw::testing::FakeExecutable;
using onw::testing::FakeMemory;
using onw::testing::FakeOptions;
using onw::testing::Random;

// Computes what `conversation` lacks of `keys`, in chunks, and returns the logits of the last row.
std::vector<float> complete(FakeExecutable& executable, Conversation& conversation, std::span<const TokenKey> keys,
                            int chunk = 7) {
  std::vector<float> logits;
  while (conversation.length() < static_cast<int64_t>(keys.size())) {
    const auto rest = keys.subspan(static_cast<size_t>(conversation.length()));
    const auto now = rest.first(std::min(rest.size(), static_cast<size_t>(chunk)));
    std::vector<Row> rows;
    for (size_t i = 0; i < now.size(); ++i) {
      rows.push_back(text_row(0, conversation.length() + static_cast<int64_t>(i), now[i].token, i + 1 == now.size()));
      rows.back().content_digest = now[i].content_digest;
    }
    Sequence* sequence = &conversation.sequence();
    const auto out = executable.run({.sequences = {&sequence, 1}, .rows = rows}, CancelToken());
    EXPECT_TRUE(out) << out.error().message;
    logits.assign(out->logits.begin(), out->logits.end());
    sequence->commit(static_cast<int>(rows.size()));
    conversation.append(now);
  }
  return logits;
}

std::vector<float> cold(std::span<const TokenKey> keys) {
  FakeExecutable executable;
  Conversation conversation = *Conversation::start(executable);
  return complete(executable, conversation, keys, 64);
}

std::vector<TokenKey> keys_of(const std::vector<int32_t>& tokens) { return text_keys(tokens); }

std::span<const TokenKey> all_but_last(const std::vector<TokenKey>& keys) {
  return std::span(keys).first(keys.size() - 1);
}

class EveryMemory : public ::testing::TestWithParam<FakeMemory> {};
INSTANTIATE_TEST_SUITE_P(Memory, EveryMemory,
                         ::testing::Values(FakeMemory::free, FakeMemory::ring, FakeMemory::recurrent),
                         [](const auto& info) {
                           return std::string(
                               std::vector{"free", "ring", "recurrent"}[static_cast<size_t>(info.param)]);
                         });

TEST_P(EveryMemory, going_on_computes_only_what_is_new) {
  FakeExecutable executable({.memory = GetParam()});
  Conversation conversation = *Conversation::start(executable);
  const auto first = keys_of({1, 2, 3});
  complete(executable, conversation, first);
  const auto second = keys_of({1, 2, 3, 4, 5});
  EXPECT_EQ(conversation.sync(all_but_last(second)).value(), 3);
  EXPECT_EQ(complete(executable, conversation, second), cold(second));
}

TEST_P(EveryMemory, the_same_token_with_another_image_behind_it_is_not_a_prefix) {
  FakeExecutable executable({.memory = GetParam()});
  Conversation conversation = *Conversation::start(executable);
  const std::vector<TokenKey> cat = {{1, 0}, {9, 0xCA7}, {9, 0xCA7}, {2, 0}};
  const std::vector<TokenKey> dog = {{1, 0}, {9, 0xD06}, {9, 0xD06}, {2, 0}};
  complete(executable, conversation, cat);
  EXPECT_LE(conversation.sync(all_but_last(dog)).value(), 1);
  EXPECT_EQ(complete(executable, conversation, dog), cold(dog));
}

TEST_P(EveryMemory, a_fork_leaves_the_original_as_it_is) {
  FakeExecutable executable({.memory = GetParam()});
  Conversation conversation = *Conversation::start(executable);
  const auto original = keys_of({1, 2, 3, 4});
  complete(executable, conversation, original);
  const auto other = keys_of({1, 2, 7, 8});
  Conversation fork = conversation.fork(all_but_last(other)).value();
  EXPECT_EQ(complete(executable, fork, other), cold(other));
  const auto longer = keys_of({1, 2, 3, 4, 5});
  EXPECT_EQ(conversation.sync(all_but_last(longer)).value(), 4);
  EXPECT_EQ(complete(executable, conversation, longer), cold(longer));
}

TEST(Conversation, a_recurrent_state_goes_back_to_the_nearest_checkpoint) {
  FakeExecutable executable({.memory = FakeMemory::recurrent});
  Conversation conversation = *Conversation::start(executable);
  for (const auto& part : {keys_of({1, 2}), keys_of({1, 2, 3, 4}), keys_of({1, 2, 3, 4, 5, 6})}) {
    complete(executable, conversation, part);
    ASSERT_TRUE(conversation.checkpoint());
  }
  EXPECT_EQ(conversation.reusable(keys_of({1, 2, 3, 4, 5, 9})), 4);
  EXPECT_EQ(conversation.sync(keys_of({1, 2, 3, 4, 5, 9})).value(), 4);
  EXPECT_EQ(conversation.sync(keys_of({1, 2, 3})).value(), 2);
  EXPECT_EQ(conversation.sync(keys_of({7})).value(), 0);
}

TEST(Conversation, a_checkpoint_beyond_the_common_prefix_is_forgotten) {
  FakeExecutable executable({.memory = FakeMemory::recurrent});
  Conversation conversation = *Conversation::start(executable);
  complete(executable, conversation, keys_of({1, 2, 3, 4}));
  ASSERT_TRUE(conversation.checkpoint());
  conversation.sync(keys_of({1, 2, 9})).value();
  const auto other = keys_of({1, 2, 9, 9, 9});
  complete(executable, conversation, other);
  EXPECT_EQ(conversation.sync(keys_of({1, 2, 9, 9})).value(), 0);  // the checkpoint at 4 was of 1 2 3 4
}

TEST(Conversation, a_ring_goes_back_by_itself_as_far_as_it_can) {
  FakeExecutable executable({.memory = FakeMemory::ring, .ring_slack = 3});
  Conversation conversation = *Conversation::start(executable);
  complete(executable, conversation, keys_of({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(conversation.sync(keys_of({1, 2, 3})).value(), 3);
  EXPECT_EQ(conversation.sync(keys_of({1, 2})).value(), 0);
}

// cache-055: a script of edits as people make them: go on, change the last message, go back, start over, regenerate;
// with and without checkpoints in between, and with several conversations that share beginnings.
TEST_P(EveryMemory, random_edits_always_equal_a_cold_run) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    FakeExecutable executable({.memory = GetParam(), .ring_slack = random.below(6)});
    PrefixCache cache(executable);
    std::vector<int32_t> tokens = {1};
    for (int edit = 0; edit < 30; ++edit) {
      if (random.chance(0.5)) tokens.resize(static_cast<size_t>(1 + random.below(static_cast<int64_t>(tokens.size()))));
      if (random.chance(0.1)) tokens = {static_cast<int32_t>(random.below(2))};
      for (const int32_t token : random.tokens(random.below(12), 3)) tokens.push_back(token);
      const auto keys = keys_of(tokens);
      Conversation conversation = cache.acquire(all_but_last(keys), {}).value();
      ASSERT_LT(conversation.length(), static_cast<int64_t>(keys.size()));
      if (random.chance(0.7)) {
        const auto part = std::span(keys).first(static_cast<size_t>(
            conversation.length() + random.below(static_cast<int64_t>(keys.size()) - conversation.length())));
        complete(executable, conversation, part, 3);
        ASSERT_TRUE(conversation.checkpoint());
      }
      const auto logits = complete(executable, conversation, keys);
      ASSERT_EQ(logits, cold(keys)) << "seed " << seed << ", edit " << edit;
      cache.put(std::move(conversation));
      if (random.chance(0.3)) cache.drop_oldest({});
    }
  }
}

TEST(PrefixCache, a_conversation_that_goes_on_is_taken_and_not_copied) {
  FakeExecutable executable;
  PrefixCache cache(executable);
  Conversation conversation = *Conversation::start(executable);
  complete(executable, conversation, keys_of({1, 2, 3}));
  const Sequence* sequence = &conversation.sequence();
  cache.put(std::move(conversation));
  Conversation again = cache.acquire(keys_of({1, 2, 3, 4}), {}).value();
  EXPECT_EQ(&again.sequence(), sequence);
  EXPECT_EQ(again.length(), 3);
  EXPECT_EQ(cache.size(), 0U);
}

TEST(PrefixCache, a_shared_beginning_is_forked_also_from_a_running_conversation) {
  FakeExecutable executable;
  PrefixCache cache(executable);
  Conversation running = *Conversation::start(executable);
  complete(executable, running, keys_of({1, 2, 3, 4}));
  Conversation* all[] = {&running};
  Conversation fork = cache.acquire(keys_of({1, 2, 9}), all).value();
  EXPECT_EQ(fork.length(), 2);
  EXPECT_EQ(running.length(), 4);
}

TEST(PrefixCache, a_state_that_happens_to_reach_back_is_found_without_a_checkpoint) {
  FakeExecutable executable({.memory = FakeMemory::ring, .ring_slack = 3});
  PrefixCache cache(executable);
  Conversation conversation = *Conversation::start(executable);
  complete(executable, conversation, keys_of({1, 2, 3, 4, 5, 6}));
  cache.put(std::move(conversation));
  EXPECT_EQ(cache.acquire(keys_of({1, 2, 3, 4, 9}), {})->length(), 4);
  EXPECT_EQ(cache.acquire(keys_of({1, 2, 9}), {})->length(), 0);
}

TEST(PrefixCache, keeps_a_contained_conversation_once_where_any_length_can_be_restored) {
  FakeExecutable executable;
  PrefixCache cache(executable);
  for (const auto& keys : {keys_of({1, 2}), keys_of({1, 2, 3, 4}), keys_of({1, 2, 3}), keys_of({5})}) {
    Conversation conversation = *Conversation::start(executable);
    complete(executable, conversation, keys);
    cache.put(std::move(conversation));
  }
  EXPECT_EQ(cache.size(), 2U);
}

TEST(PrefixCache, the_least_recently_used_goes_first) {
  FakeExecutable executable;
  PrefixCache cache(executable);
  for (const int32_t first : {1, 2, 3}) {
    Conversation conversation = *Conversation::start(executable);
    complete(executable, conversation, keys_of({first, 0, 0, 0}));
    cache.put(std::move(conversation));
  }
  cache.acquire(keys_of({1, 0, 5}), {}).value();  // a fork: 1 is used again
  EXPECT_TRUE(cache.drop_oldest({}));
  EXPECT_EQ(cache.acquire(keys_of({2, 0, 5}), {})->length(), 0);
  EXPECT_EQ(cache.acquire(keys_of({1, 0, 5}), {})->length(), 2);
  EXPECT_TRUE(cache.drop_oldest({}));
  EXPECT_TRUE(cache.drop_oldest({}));
  EXPECT_FALSE(cache.drop_oldest({}));
}

TEST(PrefixCache, old_checkpoints_go_before_their_conversation) {
  FakeExecutable executable({.memory = FakeMemory::recurrent});
  PrefixCache cache(executable);
  Conversation conversation = *Conversation::start(executable);
  complete(executable, conversation, keys_of({1, 2}));
  ASSERT_TRUE(conversation.checkpoint());
  complete(executable, conversation, keys_of({1, 2, 3}));
  cache.put(std::move(conversation));
  EXPECT_TRUE(cache.drop_oldest({}));
  EXPECT_EQ(cache.size(), 1U);
  EXPECT_EQ(cache.conversations()[0]->checkpoint_bytes(), 0);
}

TEST(StateBytes, count_shared_pages_once) {
  FakeExecutable executable({.bytes_per_token = 1, .fixed_state_bytes = 10});
  Conversation a = *Conversation::start(executable);
  const auto keys = keys_of(Random(3).tokens(600, 60));
  complete(executable, a, keys, 64);
  EXPECT_EQ(state_bytes(executable, {&a}), 768 + 10);
  Conversation b = a.fork(keys).value();
  EXPECT_EQ(state_bytes(executable, {&a, &b}), 768 + 256 + 20);  // two whole pages are shared
  Conversation c = *Conversation::start(executable);
  complete(executable, c, keys, 64);
  EXPECT_EQ(state_bytes(executable, {&a, &c}), 2 * (768 + 10));  // equal, but computed apart
}

}  // namespace
}  // namespace onw
