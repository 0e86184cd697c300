#include "targets/openvino/kv_chunks.h"

#include <gtest/gtest.h>

namespace onw::openvino {
namespace {

TEST(KvChunks, are_of_1_1_2_4_8_and_then_16_thousand_positions) {
  std::vector<int64_t> lengths;
  int64_t position = 0;
  for (int64_t i = 0; i < 9; ++i) {
    const ChunkPlace place = chunk_at(i, 1024);
    EXPECT_EQ(place.begin, position) << i;
    lengths.push_back(place.length / 1024);
    position += place.length;
  }
  EXPECT_EQ(lengths, (std::vector<int64_t>{1, 1, 2, 4, 8, 16, 16, 16, 16}));
}

TEST(KvChunks, every_position_lies_in_the_chunk_that_says_so) {
  for (int64_t position = 0; position < 1000; ++position) {
    const ChunkPlace place = chunk_of(position, 8);
    EXPECT_LE(place.begin, position);
    EXPECT_LT(position, place.begin + place.length);
    EXPECT_EQ(chunk_at(place.index, 8).begin, place.begin);
  }
}

ChunkForm form(KvFormat kv) {
  StateDecl s{.name = "kv.0", .heads = 1, .head_dim = 2, .value_dim = 2};
  return {.states = {s}, .kv = kv, .max_context = 1000, .base = 4};
}

TEST(KvChunks, a_fork_copies_what_either_writes_and_shares_the_rest) {
  ChunkSequence first(std::make_shared<const ChunkForm>(form(KvFormat::f32)));
  const auto put = [](ChunkSequence& s, int64_t position, float x) {
    ASSERT_TRUE(s.prepare(1));
    const float row[] = {x, x};
    s.write(0, position, row, row);
    s.extend(1);
  };
  for (int64_t p = 0; p < 6; ++p) put(first, p, static_cast<float>(p));
  auto forked = first.fork(6);
  ASSERT_TRUE(forked);
  auto& second = static_cast<ChunkSequence&>(**forked);
  EXPECT_EQ(&second.chunk(0, 1), &first.chunk(0, 1));
  put(second, 6, 60);
  EXPECT_EQ(&second.chunk(0, 0), &first.chunk(0, 0));
  EXPECT_NE(&second.chunk(0, 1), &first.chunk(0, 1));
  put(first, 6, 61);
  const auto k = [](ChunkSequence& s) { return reinterpret_cast<const float*>(s.chunk(0, 1).k())[2 * 2]; };
  EXPECT_EQ(k(second), 60);
  EXPECT_EQ(k(first), 61);
}

TEST(KvChunks, hold_values_transposed) {
  ChunkSequence s(std::make_shared<const ChunkForm>(form(KvFormat::f32)));
  ASSERT_TRUE(s.prepare(2));
  const float a[] = {1, 2}, b[] = {3, 4};
  s.write(0, 0, a, a);
  s.write(0, 1, b, b);
  const auto* v = reinterpret_cast<const float*>(s.chunk(0, 0).v());
  EXPECT_EQ(v[0], 1);
  EXPECT_EQ(v[1], 3);
  EXPECT_EQ(v[4], 2);
  EXPECT_EQ(v[5], 4);
}

// ---- Windows

ChunkForm ring_form() {
  StateDecl s{.name = "kv.0", .heads = 1, .head_dim = 2, .value_dim = 2, .window = 5};
  return {.states = {s}, .kv = KvFormat::f32, .max_context = 1000, .base = 4, .max_step_rows = 3};
}

void put_rows(ChunkSequence& s, int64_t rows) {
  ASSERT_TRUE(s.prepare(rows));
  for (int64_t r = 0; r < rows; ++r) {
    const auto x = static_cast<float>(s.length() + r);
    const float row[] = {x, x};
    s.write(0, s.length() + r, row, row);
  }
  s.extend(rows);
}

// Position p holds the number p: the ones that the next row sees are all there.
void expect_window(const ChunkSequence& s, const ChunkForm& form) {
  for (int64_t p = std::max<int64_t>(0, s.length() - 4); p < s.length(); ++p) {
    const auto [place, at] = form.cell(form.states[0], p);
    EXPECT_EQ(reinterpret_cast<const float*>(s.chunk(0, place.index).k())[2 * at], static_cast<float>(p)) << s.length();
  }
}

TEST(KvRings, keep_the_window_whatever_is_written_committed_or_given_up) {
  const ChunkForm form = ring_form();
  ChunkSequence s(std::make_shared<const ChunkForm>(form));
  for (int step = 0; step < 40; ++step) {
    put_rows(s, 1 + step % 3);
    if (step % 4 == 1) s.commit(step % 3);  // a part of a draft, or nothing of it
    expect_window(s, form);
  }
  // A step that was given up after its rows were written.
  ASSERT_TRUE(s.prepare(3));
  const float other[] = {-1, -1};
  for (int64_t r = 0; r < 3; ++r) s.write(0, s.length() + r, other, other);
  expect_window(s, form);
  EXPECT_EQ(s.truncate(s.length()), s.length());
}

TEST(KvRings, go_back_as_far_as_they_hold_all_that_would_be_seen_and_else_to_the_beginning) {
  const ChunkForm form = ring_form();
  ChunkSequence s(std::make_shared<const ChunkForm>(form));
  for (int i = 0; i < 10; ++i) put_rows(s, 2);
  EXPECT_EQ(s.truncate(16), 16);  // rows 12..15, of the 8 kept
  expect_window(s, form);
  EXPECT_EQ(s.truncate(15), 0);
  put_rows(s, 3);
  expect_window(s, form);
}

TEST(KvRings, a_checkpoint_keeps_its_ring_while_the_sequence_goes_on) {
  const ChunkForm form = ring_form();
  ChunkSequence s(std::make_shared<const ChunkForm>(form));
  for (int i = 0; i < 7; ++i) put_rows(s, 1);
  const auto kept = s.checkpoint();
  ASSERT_TRUE(kept);
  for (int i = 0; i < 20; ++i) put_rows(s, 1);
  ASSERT_TRUE(s.restore(**kept));
  EXPECT_EQ(s.length(), 7);
  expect_window(s, form);
}

}  // namespace
}  // namespace onw::openvino
