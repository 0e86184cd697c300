// The part of the conformance tests that is about rules: what is refused, what is promised, and that a step that did
// not happen left nothing behind. Included by targets/conformance.h.
#pragma once

#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "targets/conformance_steps.h"

namespace onw::testing {

inline void a_cancelled_step_leaves_everything_as_before(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const auto trunk = some_tokens(*executable, 20, 80);
  auto sequence = new_sequence(*executable);
  CancelToken cancelled;
  cancelled.cancel();
  for (const int64_t before : {0, 9}) {
    extend_long(*executable, *sequence, part(trunk, sequence->length(), before - sequence->length()));
    Sequence* const only = sequence.get();
    const Row row = text_row(0, before, trunk[static_cast<size_t>(before)], true);
    const auto out = executable->run({.sequences = {&only, 1}, .rows = {&row, 1}}, cancelled);
    ASSERT_FALSE(out) << "the token was cancelled before the step";
    EXPECT_EQ(out.error().code, Code::cancelled);
    EXPECT_EQ(sequence->length(), before);
  }
  expect_goes_on(*executable, *sequence, part(trunk, 0, 9));
}

inline void a_step_cancelled_while_it_runs_happened_wholly_or_not_at_all(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const int64_t before = 7, rows = std::min<int64_t>(subject.tokens - before, executable->info().max_step_rows);
  const auto trunk = some_tokens(*executable, before + rows, 81);
  for (int round = 0; round < 12; ++round) {
    auto sequence = new_sequence(*executable);
    extend_long(*executable, *sequence, part(trunk, 0, before));
    std::vector<Row> step;
    for (int64_t at = before; at < before + rows; ++at)
      step.push_back(text_row(0, at, trunk[static_cast<size_t>(at)], true));
    Sequence* const only = sequence.get();
    CancelToken cancel;
    std::thread canceller([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(1 << round));
      cancel.cancel();
    });
    const auto out = executable->run({.sequences = {&only, 1}, .rows = step}, cancel);
    canceller.join();
    if (out) {
      sequence->commit(static_cast<int>(rows));
    } else {
      ASSERT_EQ(out.error().code, Code::cancelled) << out.error().message;
    }
    const int64_t length = out ? before + rows : before;
    ASSERT_EQ(sequence->length(), length);
    expect_goes_on(*executable, *sequence, part(trunk, 0, length));
  }
}

inline void rows_that_break_the_rules_are_refused_and_leave_everything_as_before(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const auto trunk = some_tokens(*executable, 5, 82);
  auto sequence = new_sequence(*executable), other = new_sequence(*executable);
  extend_long(*executable, *sequence, trunk);
  const auto vocabulary = static_cast<int32_t>(executable->info().vocabulary);
  const std::vector<float> embedding(static_cast<size_t>(executable->info().hidden) + 1);
  Row wide = text_row(0, 5, 0, true);
  wide.embedding = embedding;
  const auto refused = [&](const char* what, std::vector<Sequence*> sequences, std::vector<Row> rows) {
    const auto out = executable->run({.sequences = sequences, .rows = rows}, CancelToken());
    ASSERT_FALSE(out) << what << " was accepted";
    EXPECT_EQ(out.error().code, Code::invalid_argument) << what << ": " << out.error().message;
    EXPECT_FALSE(out.error().message.empty()) << what;
    EXPECT_EQ(sequence->length(), 5) << what;
  };
  Sequence* const s = sequence.get();
  refused("a step without rows", {s}, {});
  refused("a token below the vocabulary", {s}, {text_row(0, 5, -1, true)});
  refused("a token beyond the vocabulary", {s}, {text_row(0, 5, vocabulary, true)});
  refused("an index behind the length", {s}, {text_row(0, 4, 1, true)});
  refused("an index beyond the length", {s}, {text_row(0, 6, 1, true)});
  refused("a gap between rows", {s}, {text_row(0, 5, 1, true), text_row(0, 7, 1, true)});
  refused("rows in descending order", {s}, {text_row(0, 6, 1, true), text_row(0, 5, 1, true)});
  refused("a sequence that the step does not have", {s}, {text_row(1, 5, 1, true)});
  refused("a negative sequence", {s}, {text_row(-1, 5, 1, true)});
  refused("a sequence without rows", {s, other.get()}, {text_row(0, 5, 1, true)});
  refused("a null sequence", {nullptr}, {text_row(0, 0, 1, true)});
  refused("the same sequence twice", {s, s}, {text_row(0, 5, 1, true), text_row(1, 6, 1, true)});
  refused("an embedding of another width", {s}, {wide});
  refused("rows of a sequence apart", {s, other.get()},
          {text_row(0, 5, 1, true), text_row(1, 0, 1, true), text_row(0, 6, 1, true)});
  if (!executable->mixes_prompt_and_decode())
    refused("two sequences in one step", {s, other.get()}, {text_row(0, 5, 1, true), text_row(1, 0, 1, true)});
  refused("a bad row after a good one", {s}, {text_row(0, 5, 1, true), text_row(0, 6, vocabulary, true)});
  expect_goes_on(*executable, *sequence, trunk);
}

inline void a_step_takes_as_many_rows_as_promised_and_no_more(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const int64_t most = executable->info().max_step_rows;
  ASSERT_GE(most, 1);
  EXPECT_LE(executable->info().max_partial_rows, most);
  if (most + 1 > executable->info().max_context) return;  // the context ends first
  auto sequence = new_sequence(*executable);
  Sequence* const only = sequence.get();
  std::vector<Row> rows;
  for (int64_t i = 0; i <= most; ++i) rows.push_back(text_row(0, i, 1, i + 1 >= most));
  const auto out = executable->run({.sequences = {&only, 1}, .rows = rows}, CancelToken());
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, Code::invalid_argument);
  rows.pop_back();
  const auto fits = executable->run({.sequences = {&only, 1}, .rows = rows}, CancelToken());
  EXPECT_TRUE(fits) << fits.error().message;
}

inline void reserve_makes_room_and_changes_nothing(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const auto trunk = some_tokens(*executable, subject.tokens, 83);
  auto sequence = new_sequence(*executable);
  for (const int64_t length : some_lengths(subject.tokens)) {
    const auto reserved = sequence->reserve(length);
    ASSERT_TRUE(reserved) << reserved.error().message;
    extend_long(*executable, *sequence, part(trunk, sequence->length(), length - sequence->length()));
    ASSERT_EQ(sequence->length(), length);
  }
  ASSERT_TRUE(sequence->reserve(1)) << "less than it holds is nothing to do";
  ASSERT_EQ(sequence->length(), subject.tokens);
  const auto beyond = sequence->reserve(executable->info().max_context + 1);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, Code::context_overflow);
  expect_goes_on(*executable, *sequence, trunk);
}

inline void need_and_cost_grow_with_what_is_asked(const ConformanceSubject& subject) {
  const auto executable = subject.make();
  const int64_t most = executable->info().max_context;
  int64_t before = executable->need(0, 1).state_bytes;
  EXPECT_GE(before, 0);
  for (int64_t tokens = 1; tokens < most; tokens *= 4) {
    const MemoryNeed one = executable->need(tokens, 1), two = executable->need(tokens, 2);
    EXPECT_GE(one.state_bytes, before) << tokens;
    EXPECT_EQ(two.state_bytes, 2 * one.state_bytes) << tokens;
    EXPECT_EQ(two.weights_bytes, one.weights_bytes) << "weights are there once";
    EXPECT_GT(one.total(), 0);
    before = one.state_bytes;
  }
  EXPECT_GT(executable->need(most, 1).state_bytes, 0);
  for (const int rows : {1, 2, 16, executable->info().max_step_rows}) {
    const double seconds = executable->cost({.rows = rows, .depth = 10}).seconds;
    EXPECT_TRUE(std::isfinite(seconds) && seconds >= 0) << rows << " rows: " << seconds;
  }
}

// The canonical state in memory.
struct StateBlobs : StateSink, StateSource {
  Result<void> put(std::string_view name, std::span<const std::byte> bytes) override {
    if (blobs.contains(std::string(name))) return error(Code::internal, "{} came twice", name);
    blobs[std::string(name)].assign(bytes.begin(), bytes.end());
    return {};
  }
  Result<std::span<const std::byte>> get(std::string_view name) override {
    const auto found = blobs.find(std::string(name));
    if (found == blobs.end()) return error(Code::not_found, "no blob {}", name);
    return std::span<const std::byte>(found->second);
  }
  int64_t length() const override { return tokens; }
  KvFormat kv_format() const override { return kv; }

  std::map<std::string, std::vector<std::byte>> blobs;
  int64_t tokens = 0;
  KvFormat kv = KvFormat::int8;
};

inline void an_exported_state_goes_on_elsewhere(const ConformanceSubject& subject) {
  const auto executable = subject.make(), elsewhere = subject.make();
  const auto trunk = some_tokens(*executable, subject.tokens, 84);
  auto sequence = new_sequence(*executable);
  for (const int64_t length : some_lengths(subject.tokens)) {
    extend_long(*executable, *sequence, part(trunk, sequence->length(), length - sequence->length()));
    StateBlobs state;
    state.tokens = length;
    state.kv = executable->info().kv;
    const auto exported = sequence->export_to(state);
    ASSERT_TRUE(exported) << exported.error().message;
    auto imported = new_sequence(*elsewhere);
    const auto result = imported->import_from(state);
    ASSERT_TRUE(result) << result.error().message;
    ASSERT_EQ(imported->length(), length);
    expect_goes_on(*elsewhere, *imported, part(trunk, 0, length));
    if (length == 0) continue;
    for (auto& [name, bytes] : state.blobs)
      if (!bytes.empty()) bytes.pop_back();
    auto cut_short = new_sequence(*elsewhere);
    EXPECT_FALSE(cut_short->import_from(state)) << "a state cut short was accepted";
  }
}

}  // namespace onw::testing
