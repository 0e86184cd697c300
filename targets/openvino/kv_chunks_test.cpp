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
  const auto k = [](ChunkSequence& s) { return reinterpret_cast<const float*>(s.chunk(0, 1).k.data())[2 * 2]; };
  EXPECT_EQ(k(second), 60);
  EXPECT_EQ(k(first), 61);
}

TEST(KvChunks, hold_values_transposed) {
  ChunkSequence s(std::make_shared<const ChunkForm>(form(KvFormat::f32)));
  ASSERT_TRUE(s.prepare(2));
  const float a[] = {1, 2}, b[] = {3, 4};
  s.write(0, 0, a, a);
  s.write(0, 1, b, b);
  const auto* v = reinterpret_cast<const float*>(s.chunk(0, 0).v.data());
  EXPECT_EQ(v[0], 1);
  EXPECT_EQ(v[1], 3);
  EXPECT_EQ(v[4], 2);
  EXPECT_EQ(v[5], 4);
}

}  // namespace
}  // namespace onw::openvino
