#include "runtime/suffix_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/testing/random.h"

namespace onw {
namespace {

using onw::testing::Random;
using Tokens = std::vector<int32_t>;

// The longest end of `other` that stands in `text` so that it ends at or before `last_end`, and its last such end.
SuffixAutomaton::Match search(const Tokens& text, const Tokens& other, int32_t last_end) {
  SuffixAutomaton::Match best;
  for (int32_t end = 1; end <= last_end; ++end) {
    int32_t length = 0;
    while (length < end && length < static_cast<int32_t>(other.size()) &&
           text[static_cast<size_t>(end - 1 - length)] == other[other.size() - 1 - static_cast<size_t>(length)])
      ++length;
    if (length > 0 && length >= best.length) best = {length, end};
  }
  return best;
}

// Random, or with long stretches copied from before, as texts are.
Tokens some_text(Random& random, int64_t length, int32_t vocabulary) {
  Tokens text;
  while (static_cast<int64_t>(text.size()) < length) {
    if (text.size() < 4 || random.chance(0.7)) {
      text.push_back(static_cast<int32_t>(random.below(vocabulary)));
      continue;
    }
    auto from = static_cast<size_t>(random.below(static_cast<int64_t>(text.size())));
    for (int64_t n = random.below(20); n >= 0; --n) text.push_back(text[from++]);
  }
  return text;
}

TEST(SuffixAutomaton, finds_the_longest_repeated_end_and_its_latest_place_as_a_search_does) {
  Random random(1);
  int latest_places = 0;
  for (const int32_t vocabulary : {2, 3, 10, 1000})
    for (int round = 0; round < 8; ++round) {
      const Tokens text = some_text(random, 120, vocabulary);
      SuffixAutomaton automaton;
      Tokens so_far;
      int32_t longest = 0;
      for (const int32_t token : text) {
        automaton.append(token);
        so_far.push_back(token);
        const auto expected = search(so_far, so_far, static_cast<int32_t>(so_far.size()) - 1);
        const auto got = automaton.repeated();
        ASSERT_EQ(got.length, expected.length) << "after " << so_far.size() << " of round " << round;
        const auto end = so_far.begin() + got.end;
        ASSERT_TRUE(std::equal(end - got.length, end, so_far.end() - got.length)) << "after " << so_far.size();
        longest = std::max(longest, got.length);
        if (longest > SuffixAutomaton::kFreshSuffixes) continue;  // so long a repetition may have hidden the latest
        ASSERT_EQ(got.end, expected.end) << "after " << so_far.size() << " of round " << round;
        ++latest_places;
      }
      EXPECT_EQ(automaton.length(), static_cast<int64_t>(text.size()));
    }
  EXPECT_GT(latest_places, 2000);
}

TEST(SuffixAutomaton, follows_another_text_as_a_search_does_while_it_grows_itself) {
  Random random(2);
  for (const int32_t vocabulary : {2, 4, 50}) {
    const Tokens text = some_text(random, 150, vocabulary), other = some_text(random, 150, vocabulary);
    SuffixAutomaton automaton;
    SuffixAutomaton::Cursor cursor;
    Tokens known, heard;
    for (size_t i = 0; i < text.size() && i < other.size(); ++i) {
      if (i % 3 == 0) {  // it grows now and then
        known.insert(known.end(), text.begin() + static_cast<std::ptrdiff_t>(known.size()),
                     text.begin() + static_cast<std::ptrdiff_t>(i));
        while (automaton.length() < static_cast<int64_t>(known.size()))
          automaton.append(known[static_cast<size_t>(automaton.length())]);
      }
      heard.push_back(other[i]);
      automaton.advance(cursor, other[i]);
      const auto expected = search(known, heard, static_cast<int32_t>(known.size()));
      const auto got = automaton.at(cursor);
      // What was learned after the cursor passed may make an even longer match: never found, and never needed.
      ASSERT_LE(got.length, expected.length);
      const auto begin = known.begin() + got.end - got.length;
      ASSERT_TRUE(std::equal(begin, known.begin() + got.end, heard.end() - got.length));
      if (i % 3 != 0 && expected.length <= static_cast<int32_t>(i % 3)) ASSERT_EQ(got.length, expected.length);
    }
  }
}

TEST(SuffixAutomaton, follows_another_text_through_one_that_stays_and_finds_the_longest) {
  Random random(3);
  const Tokens text = some_text(random, 300, 5), other = some_text(random, 300, 5);
  SuffixAutomaton automaton;
  for (const int32_t token : text) automaton.append(token);
  SuffixAutomaton::Cursor cursor;
  Tokens heard;
  for (const int32_t token : other) {
    heard.push_back(token);
    automaton.advance(cursor, token);
    ASSERT_EQ(automaton.at(cursor).length, search(text, heard, static_cast<int32_t>(text.size())).length);
  }
}

TEST(SuffixAutomaton, one_token_again_and_again_takes_its_place_and_no_more) {
  SuffixAutomaton automaton;
  for (int i = 0; i < 5000; ++i) automaton.append(7);
  EXPECT_EQ(automaton.repeated().length, 4999);
  EXPECT_LE(automaton.bytes(), 5000 * 100);
}

TEST(SuffixAutomaton, takes_about_a_hundred_bytes_a_token) {
  Random random(4);
  SuffixAutomaton automaton;
  for (const int32_t token : some_text(random, 20000, 500)) automaton.append(token);
  EXPECT_LE(automaton.bytes(), automaton.length() * 180);  // a vector has up to twice what it needs
}

}  // namespace
}  // namespace onw
