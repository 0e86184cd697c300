// The part of the conformance tests that is about results: whatever way a sequence got where it is, the next logits are
// the same bits. Included by targets/conformance.h.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "targets/conformance_steps.h"

namespace onw::testing {

inline void one_shot_equals_token_by_token(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const auto tokens = some_tokens(*executable, subject.tokens, 1);
  const auto whole = logits_of(*executable, tokens, executable->info().max_step_rows);
  const auto single = logits_of(*executable, tokens, 1);
  for (size_t i = 0; i < tokens.size(); ++i) ASSERT_TRUE(same_bits(whole[i], single[i])) << "position " << i;
  ASSERT_FALSE(same_bits(whole[0], whole[1])) << "logits that do not depend on the tokens prove nothing";
}

inline void uneven_segments_change_nothing(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const auto tokens = some_tokens(*executable, subject.tokens, 2);
  const auto expected = logits_of(*executable, tokens, executable->info().max_step_rows);
  for (const std::vector<int>& sizes : {std::vector{1, 2, 3, 5, 8, 13, 21}, {17, 1}, {7, 64, 1, 1}, {255, 2}}) {
    auto sequence = new_sequence(*executable);
    size_t segment = 0;
    while (sequence->length() < subject.tokens) {
      const int64_t at = sequence->length();
      const int64_t rows =
          std::min<int64_t>({sizes[segment++ % sizes.size()], subject.tokens - at, executable->info().max_step_rows});
      const auto logits = extend(*executable, *sequence, part(tokens, at, rows));
      ASSERT_EQ(sequence->length(), at + rows);
      for (int64_t i = 0; i < rows; ++i)
        ASSERT_TRUE(same_bits(logits[static_cast<size_t>(i)], expected[static_cast<size_t>(at + i)]))
            << "position " << at + i << " in a segment of " << rows;
    }
  }
}

inline void only_the_rows_that_want_logits_have_them(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const int64_t n = std::min<int64_t>(20, executable->info().max_step_rows);
  const auto tokens = some_tokens(*executable, n, 3);
  const auto expected = logits_of(*executable, tokens, static_cast<int>(n));
  auto sequence = new_sequence(*executable);
  Sequence* const only = sequence.get();
  std::vector<Row> rows;
  for (int64_t i = 0; i < n; ++i) rows.push_back(text_row(0, i, tokens[static_cast<size_t>(i)], i % 3 == 2));
  const auto out = executable->run({.sequences = {&only, 1}, .rows = rows}, CancelToken());
  ASSERT_TRUE(out) << out.error().message;
  const auto vocabulary = static_cast<size_t>(executable->info().vocabulary);
  ASSERT_EQ(out->logits.size(), static_cast<size_t>(n / 3) * vocabulary);
  for (size_t i = 0; i < static_cast<size_t>(n / 3); ++i)
    ASSERT_TRUE(same_bits(out->logits.subspan(i * vocabulary, vocabulary), expected[3 * i + 2])) << "row " << 3 * i + 2;
  sequence->commit(static_cast<int>(n));

  // None at all is a step too: a chunk of a prompt.
  const Row silent = text_row(0, n, tokens[0], false);
  const auto quiet = executable->run({.sequences = {&only, 1}, .rows = {&silent, 1}}, CancelToken());
  ASSERT_TRUE(quiet) << quiet.error().message;
  EXPECT_TRUE(quiet->logits.empty());
}

inline void hidden_states_come_where_wanted(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const auto hidden = static_cast<size_t>(executable->info().hidden);
  const int64_t n = std::min<int64_t>(12, executable->info().max_step_rows);
  const auto tokens = some_tokens(*executable, n, 4);
  const auto run = [&](Sequence* sequence, std::vector<Row> rows) {
    for (Row& row : rows) row.wants_hidden = row.index % 2 == 1;
    const auto out = executable->run({.sequences = {&sequence, 1}, .rows = rows}, CancelToken());
    EXPECT_TRUE(out) << out.error().message;
    sequence->commit(static_cast<int>(rows.size()));
    return out ? std::vector<float>(out->hidden.begin(), out->hidden.end()) : std::vector<float>();
  };
  std::vector<Row> rows;
  for (int64_t i = 0; i < n; ++i) rows.push_back(text_row(0, i, tokens[static_cast<size_t>(i)], i % 3 == 0));
  auto together = new_sequence(*executable), single = new_sequence(*executable);
  const std::vector<float> expected = run(together.get(), rows);
  ASSERT_EQ(expected.size(), static_cast<size_t>(n / 2) * hidden);
  std::vector<float> got;
  for (const Row& row : rows) {
    const auto one = run(single.get(), {row});
    got.insert(got.end(), one.begin(), one.end());
  }
  EXPECT_TRUE(same_bits(got, expected));
}

// Three sequences of different lengths, prompt and decode rows together, against each alone.
inline void neighbours_in_a_step_change_nothing(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  if (!executable->mixes_prompt_and_decode()) return;  // such a step is refused, which another check looks at
  const int64_t n = subject.tokens / 3;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<std::vector<float>>> expected;
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (uint64_t s = 0; s < 3; ++s) {
    tokens.push_back(some_tokens(*executable, n, 10 + s));
    expected.push_back(logits_of(*executable, tokens.back(), executable->info().max_step_rows));
    sequences.push_back(new_sequence(*executable));
  }
  const int most = std::max(1, executable->info().max_step_rows / 3);
  for (int step = 0;; ++step) {
    std::vector<Segment> segments;
    for (size_t s = 0; s < 3; ++s) {
      const int64_t at = sequences[s]->length();
      const int64_t wanted = s == 1 ? 1 : 1 + (step * 7 + static_cast<int>(s) * 5) % 23;
      const int64_t rows = std::min<int64_t>({wanted, n - at, most});
      if (rows > 0) segments.push_back({sequences[s].get(), part(tokens[s], at, rows)});
    }
    if (segments.empty()) break;
    std::map<Sequence*, int64_t> begin;
    for (const Segment& segment : segments) begin[segment.sequence] = segment.sequence->length();
    const auto logits = run_together(*executable, segments);
    for (const Segment& segment : segments)
      ASSERT_EQ(segment.sequence->length(), begin[segment.sequence] + static_cast<int64_t>(segment.tokens.size()));
    size_t row = 0;
    for (const Segment& segment : segments)
      for (size_t i = 0; i < segment.tokens.size(); ++i, ++row) {
        const auto owner = std::ranges::find(sequences, segment.sequence, &std::unique_ptr<Sequence>::get);
        const auto s = static_cast<size_t>(owner - sequences.begin());
        const auto position = static_cast<size_t>(begin[segment.sequence]) + i;
        ASSERT_TRUE(same_bits(logits.at(row), expected[s][position])) << "sequence " << s << ", position " << position;
      }
  }
}

inline void sequences_that_take_turns_do_not_disturb_each_other(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const int64_t n = subject.tokens / 3;
  const auto a = some_tokens(*executable, n, 20), b = some_tokens(*executable, n, 21);
  const auto expected_a = logits_of(*executable, a, 1), expected_b = logits_of(*executable, b, 1);
  auto first = new_sequence(*executable), second = new_sequence(*executable);
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    ASSERT_TRUE(same_bits(extend(*executable, *first, part(a, i, 1))[0], expected_a[at])) << "position " << i;
    ASSERT_TRUE(same_bits(extend(*executable, *second, part(b, i, 1))[0], expected_b[at])) << "position " << i;
  }
}

inline void forks_go_their_own_way(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const int64_t n = subject.tokens / 2;
  const auto trunk = some_tokens(*executable, n, 30);
  auto original = new_sequence(*executable);
  extend_long(*executable, *original, trunk);
  auto fork = original->fork(n);
  ASSERT_TRUE(fork) << fork.error().message;
  ASSERT_EQ((*fork)->length(), n);
  // In turns, so that each writes where the other would, if they shared more than they may.
  std::vector<int32_t> left = trunk, right = trunk;
  for (int i = 0; i < 9; ++i) {
    left.push_back(some_tokens(*executable, 9, 31)[static_cast<size_t>(i)]);
    right.push_back(some_tokens(*executable, 9, 32)[static_cast<size_t>(i)]);
    ASSERT_TRUE(same_bits(extend(*executable, *original, part(left, n + i, 1))[0], cold(*executable, left))) << i;
    ASSERT_TRUE(same_bits(extend(*executable, **fork, part(right, n + i, 1))[0], cold(*executable, right))) << i;
  }
  original.reset();  // the fork keeps what it needs
  right.push_back(1);
  EXPECT_TRUE(same_bits(extend(*executable, **fork, part(right, n + 9, 1))[0], cold(*executable, right)));
}

inline void a_fork_shares_any_restorable_beginning(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const int64_t n = subject.tokens;
  const auto trunk = some_tokens(*executable, n, 40);
  auto original = new_sequence(*executable);
  extend_long(*executable, *original, trunk);
  for (const int64_t at : some_lengths(n)) {
    auto fork = original->fork(at);
    if (!fork) {
      EXPECT_FALSE(executable->info().truncates_freely) << at << ": " << fork.error().message;
      EXPECT_NE(at, n) << "where it stands, a sequence can always be forked: " << fork.error().message;
      continue;
    }
    ASSERT_EQ((*fork)->length(), at);
    expect_goes_on(*executable, **fork, part(trunk, 0, at));
  }
  EXPECT_FALSE(original->fork(n + 1)) << "a fork beyond the end";
  expect_goes_on(*executable, *original, trunk);
}

inline void truncation_forgets_the_tail_and_nothing_else(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const int64_t n = subject.tokens;
  const auto trunk = some_tokens(*executable, n, 50);
  for (const int64_t to : some_lengths(n)) {
    auto sequence = new_sequence(*executable);
    extend_long(*executable, *sequence, trunk);
    const int64_t reached = sequence->truncate(to);
    ASSERT_LE(reached, to);
    ASSERT_GE(reached, 0);
    ASSERT_EQ(sequence->length(), reached);
    if (executable->info().truncates_freely || to == n) ASSERT_EQ(reached, to);
    expect_goes_on(*executable, *sequence, part(trunk, 0, reached));
  }
  auto sequence = new_sequence(*executable);
  extend_long(*executable, *sequence, part(trunk, 0, 10));
  EXPECT_EQ(sequence->truncate(11), 10);
}

inline void checkpoints_bring_a_state_back(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const auto trunk = some_tokens(*executable, subject.tokens, 60);
  std::vector<CheckpointPtr> checkpoints;
  auto sequence = new_sequence(*executable);
  for (const int64_t at : some_lengths(subject.tokens)) {
    extend_long(*executable, *sequence, part(trunk, sequence->length(), at - sequence->length()));
    auto checkpoint = sequence->checkpoint();
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_EQ((*checkpoint)->length(), at);
    EXPECT_GE((*checkpoint)->bytes(), 0);
    checkpoints.push_back(*checkpoint);
  }
  const auto restores = [&](Sequence& into, const Checkpoint& checkpoint, const char* what) {
    const auto restored = into.restore(checkpoint);
    ASSERT_TRUE(restored) << what << ": " << restored.error().message;
    ASSERT_EQ(into.length(), checkpoint.length()) << what;
    expect_goes_on(*executable, into, part(trunk, 0, checkpoint.length()));
  };
  auto fork = sequence->fork(sequence->length());
  ASSERT_TRUE(fork) << fork.error().message;
  std::ranges::reverse(checkpoints);
  for (const auto& checkpoint : checkpoints) {
    restores(*sequence, *checkpoint, "into its own sequence");
    restores(**fork, *checkpoint, "into a fork");
    restores(*new_sequence(*executable), *checkpoint, "into a new sequence");
  }
  std::ranges::reverse(checkpoints);
  sequence.reset();
  fork->reset();
  for (const auto& checkpoint : checkpoints)  // forward too, and after all sequences it came from
    restores(*new_sequence(*executable), *checkpoint, "after the sequence is gone");
}

inline void commit_keeps_a_part_of_a_step(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const int64_t most = std::min<int64_t>({executable->info().max_partial_rows, executable->info().max_step_rows, 17});
  const auto trunk = some_tokens(*executable, subject.tokens, 70);
  for (const int64_t before : {int64_t{0}, int64_t{5}, std::min<int64_t>(subject.tokens - most, 250)}) {
    for (int64_t rows = 1; rows <= most; rows += rows < 4 ? 1 : 5) {
      for (int64_t kept = 0; kept <= rows; kept += kept < 2 ? 1 : 3) {
        auto sequence = new_sequence(*executable);
        extend_long(*executable, *sequence, part(trunk, 0, before));
        run_together(*executable, {{sequence.get(), part(trunk, before, rows)}}, Commit::later);
        sequence->commit(static_cast<int>(kept));
        ASSERT_EQ(sequence->length(), before + kept) << rows << " rows after " << before;
        expect_goes_on(*executable, *sequence, part(trunk, 0, before + kept));
      }
    }
  }
  auto sequence = new_sequence(*executable);
  run_together(*executable, {{sequence.get(), part(trunk, 0, 1)}}, Commit::later);
  run_together(*executable, {{sequence.get(), part(trunk, 1, 1)}}, Commit::later);  // the first counts as kept whole
  sequence->commit(1);
  expect_goes_on(*executable, *sequence, part(trunk, 0, 2));
}

}  // namespace onw::testing
