// Steps and comparisons for the conformance tests, useful to other tests of targets too.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "targets/executable.h"

namespace onw::testing {

using Tokens = std::vector<int32_t>;
using Logits = std::vector<float>;  // [vocabulary]

// Any tokens of the vocabulary, the same for the same seed.
inline Tokens some_tokens(const Executable& executable, int64_t count, uint64_t seed) {
  Tokens tokens;
  uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's linear congruential generator
    tokens.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(executable.info().vocabulary)));
  }
  return tokens;
}

// Lengths up to n at which something may change: beginnings, ends, and both sides of 16 and 256. Ascending.
inline std::vector<int64_t> some_lengths(int64_t n) {
  std::vector<int64_t> lengths;
  for (const int64_t length : {int64_t{0}, int64_t{1}, int64_t{15}, int64_t{16}, int64_t{17}, n / 2, int64_t{255},
                               int64_t{256}, int64_t{257}, n - 9, n - 1, n})
    if (length >= 0 && length <= n) lengths.push_back(length);
  std::ranges::sort(lengths);
  const auto twice = std::ranges::unique(lengths);
  lengths.erase(twice.begin(), twice.end());
  return lengths;
}

inline Tokens part(std::span<const int32_t> tokens, int64_t begin, int64_t count) {
  const auto piece = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  return {piece.begin(), piece.end()};
}

// How far logits that should be the same may be apart, relative to the largest: 0 asks for the same bits. A target
// whose products depend on the number of rows says what it promises instead (ConformanceSubject::tolerance).
inline double& tolerance() {
  static double relative = 0;
  return relative;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return false;
  if (tolerance() == 0) return a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
  double most = 0, off = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max<double>(most, std::fabs(a[i]));
    off = std::max<double>(off, std::fabs(a[i] - b[i]));
  }
  return off <= tolerance() * most;
}

inline std::unique_ptr<Sequence> new_sequence(Executable& executable) {
  auto sequence = executable.new_sequence();
  EXPECT_TRUE(sequence) << sequence.error().message;
  return std::move(*sequence);
}

struct Segment {
  Sequence* sequence = nullptr;
  Tokens tokens;
};

enum class Commit : uint8_t { all, later };

// One step. Returns the logits of every row.
inline std::vector<Logits> run_together(Executable& executable, const std::vector<Segment>& segments,
                                        Commit commit = Commit::all) {
  std::vector<Sequence*> sequences;
  std::vector<Row> rows;
  for (const Segment& segment : segments) {
    const auto index = static_cast<int>(sequences.size());
    sequences.push_back(segment.sequence);
    int64_t at = segment.sequence->length();
    for (const int32_t token : segment.tokens) rows.push_back(text_row(index, at++, token, true));
  }
  const auto out = executable.run({.sequences = sequences, .rows = rows}, CancelToken());
  EXPECT_TRUE(out) << out.error().message;
  const auto vocabulary = static_cast<size_t>(executable.info().vocabulary);
  std::vector<Logits> logits(rows.size(), Logits(vocabulary));
  if (!out) return logits;
  EXPECT_EQ(out->logits.size(), rows.size() * vocabulary);
  for (size_t i = 0; i < rows.size() && (i + 1) * vocabulary <= out->logits.size(); ++i)
    std::ranges::copy(out->logits.subspan(i * vocabulary, vocabulary), logits[i].begin());
  if (commit == Commit::all)
    for (const Segment& segment : segments) segment.sequence->commit(static_cast<int>(segment.tokens.size()));
  return logits;
}

inline std::vector<Logits> extend(Executable& executable, Sequence& sequence, const Tokens& tokens) {
  return run_together(executable, {{&sequence, tokens}});
}

// In as many steps as it takes, of at most `step_rows` (0: as many as the target takes).
inline std::vector<Logits> extend_long(Executable& executable, Sequence& sequence, const Tokens& tokens,
                                       int64_t step_rows = 0) {
  if (step_rows == 0) step_rows = executable.info().max_step_rows;
  std::vector<Logits> logits;
  const auto n = static_cast<int64_t>(tokens.size());
  for (int64_t at = 0; at < n; at += step_rows)
    for (Logits& row : extend(executable, sequence, part(tokens, at, std::min(step_rows, n - at))))
      logits.push_back(std::move(row));
  return logits;
}

// The logits after each of `tokens`, by a sequence of their own.
inline std::vector<Logits> logits_of(Executable& executable, const Tokens& tokens, int64_t step_rows = 0) {
  auto sequence = new_sequence(executable);
  return extend_long(executable, *sequence, tokens, step_rows);
}

// The logits after the last of `tokens`, computed from nothing.
inline Logits cold(Executable& executable, const Tokens& tokens) { return logits_of(executable, tokens).back(); }

// That `sequence` holds exactly `so_far`: what comes next has the bits of a sequence that went there straight. The next
// tokens are other ones than the sequence may have forgotten.
inline void expect_goes_on(Executable& executable, Sequence& sequence, const Tokens& so_far) {
  Tokens straight = so_far;
  for (const int32_t token : some_tokens(executable, 3, 7 + so_far.size())) straight.push_back(token);
  const auto expected = logits_of(executable, straight);
  for (size_t at = so_far.size(); at < straight.size(); ++at) {
    const auto logits = extend(executable, sequence, {straight[at]});
    ASSERT_TRUE(same_bits(logits[0], expected[at])) << "position " << at << ", after a state of " << so_far.size();
  }
}

}  // namespace onw::testing
