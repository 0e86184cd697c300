// Static graphs over long prompts, in batches of sessions, after cancelling and after resuming: against the reference,
// on OpenVINO's CPU device.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "passes/quantise.h"
#include "targets/conformance.h"
#include "targets/op_observer.h"
#include "targets/openvino/openvino.h"
#include "targets/openvino/testing.h"
#include "targets/reference/reference.h"
#include "tests/random_model.h"

namespace onw::testing {
namespace {

RandomModel small_model(std::string_view family, int64_t window, int64_t hidden = 320) {
  nlohmann::json config = tiny_config(family, hidden);
  config["num_hidden_layers"] = 2;
  config["vocab_size"] = 64;
  config["max_position_embeddings"] = 8192;
  if (window > 0) config.update({{"sliding_window", window}, {"sliding_window_pattern", 2}});
  return random_model(config, [](const WeightDecl&) { return WeightFormat::q4g128; });
}

double relative_difference(std::span<const float> a, std::span<const float> b) {
  double most = 0, off = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max<double>(most, std::fabs(a[i]));
    off = std::max<double>(off, std::fabs(a[i] - b[i]));
  }
  return off / most;
}

class WithOpenVinoStatic : public ::testing::Test {
 protected:
  void SetUp() override {
    if (openvino_runtime() == nullptr) GTEST_SKIP() << kNoOpenVino;
  }

  static std::unique_ptr<Executable> graphs(const RandomModel& m, OpenVinoOptions options) {
    options.runtime = openvino_runtime();
    options.threads = 2;
    options.exact = true;
    options.kv = KvFormat::f32;
    options.isa = available_isas(cpu_features()).back();
    auto target = make_openvino(m.program, m.weights, options);
    EXPECT_TRUE(target) << target.error().message;
    return target ? std::move(*target) : nullptr;
  }

  static std::unique_ptr<Executable> reference(const RandomModel& m) {
    auto target = make_reference(set_kv_format(m.program, "f32"), m.weights, {.threads = 2, .max_step_rows = 512});
    EXPECT_TRUE(target) << target.error().message;
    return target ? std::move(*target) : nullptr;
  }

  // The sequence takes `ids`; gives the logits of the last `shown`.
  static Logits feed(Executable& target, Sequence& s, std::span<const int32_t> ids, int64_t shown) {
    Logits logits;
    const auto n = static_cast<int64_t>(ids.size());
    for (int64_t at = 0; at < n;) {
      const int64_t count = std::min<int64_t>(n - at, target.info().max_step_rows);
      std::vector<Row> rows;
      for (int64_t i = at; i < at + count; ++i)
        rows.push_back(text_row(0, s.length() + i - at, ids[static_cast<size_t>(i)], i >= n - shown));
      Sequence* const only = &s;
      const auto out = target.run({.sequences = {&only, 1}, .rows = rows}, CancelToken());
      EXPECT_TRUE(out) << out.error().message;
      if (!out) return {};
      logits.insert(logits.end(), out->logits.begin(), out->logits.end());
      s.commit(static_cast<int>(count));
      at += count;
    }
    return logits;
  }
};

// Real chunks of 1K, 1K, 2K and 4K positions, a window's ring, and a prompt that goes past each of their edges.
TEST_F(WithOpenVinoStatic, agree_with_the_reference_at_1_2_and_5_thousand_positions) {
  const RandomModel m = small_model("gemma3", 100, 48);
  const auto ours = graphs(m, {.block_rows = {1, 64}, .max_step_rows = 64});
  const auto judge = reference(m);
  ASSERT_TRUE(ours && judge);
  const auto ids = some_tokens(*ours, 5003, 7);
  const auto a = new_sequence(*judge), b = new_sequence(*ours);
  int64_t at = 0;
  for (const int64_t upto : {1022, 1027, 2046, 2051, 4094, 4099, 5003}) {
    const auto piece = std::span(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(upto - at));
    const auto expected = feed(*judge, *a, piece, 4), got = feed(*ours, *b, piece, 4);
    EXPECT_LE(relative_difference(expected, got), 1e-4) << upto << " positions";
    EXPECT_NE(relative_difference(expected, got), 0) << upto;
    at = upto;
  }
}

// Prompts that end around every edge of a ring of 20 + 16 positions, and every block's.
TEST_F(WithOpenVinoStatic, agree_with_the_reference_around_every_edge_of_a_ring) {
  const RandomModel m = small_model("gemma3", 20);
  const auto ours = graphs(m, {.block_rows = {1, 4, 16}, .chunk_positions = 8, .max_step_rows = 16});
  const auto judge = reference(m);
  ASSERT_TRUE(ours && judge);
  const auto ids = some_tokens(*ours, 120, 3);
  for (const int64_t first : {1, 4, 16, 19, 20, 21, 35, 36, 37, 55, 56, 72, 73}) {
    const auto a = new_sequence(*judge), b = new_sequence(*ours);
    feed(*judge, *a, std::span(ids).first(static_cast<size_t>(first)), 0);
    feed(*ours, *b, std::span(ids).first(static_cast<size_t>(first)), 0);
    for (const int64_t more : {1, 5, 1, 16}) {
      const auto piece = std::span(ids).subspan(static_cast<size_t>(a->length()), static_cast<size_t>(more));
      const auto expected = feed(*judge, *a, piece, more), got = feed(*ours, *b, piece, more);
      EXPECT_LE(relative_difference(expected, got), 1e-4) << first << " tokens and " << more << " to " << a->length();
    }
  }
}

// Sessions of different lengths in one step, prompts and single tokens together.
TEST_F(WithOpenVinoStatic, sessions_in_one_step_get_what_each_gets_alone) {
  const RandomModel m = small_model("gemma3", 20);
  const auto ours = graphs(m, {.block_rows = {1, 4, 16}, .chunk_positions = 8, .max_step_rows = 32});
  const auto judge = reference(m);
  ASSERT_TRUE(ours && judge);
  const std::vector<int64_t> lengths = {3, 17, 40, 9, 65};
  std::vector<std::unique_ptr<Sequence>> mine, theirs;
  std::vector<Tokens> ids;
  for (size_t i = 0; i < lengths.size(); ++i) {
    ids.push_back(some_tokens(*ours, 100, 20 + i));
    mine.push_back(new_sequence(*ours));
    theirs.push_back(new_sequence(*judge));
    feed(*ours, *mine.back(), std::span(ids[i]).first(static_cast<size_t>(lengths[i])), 0);
    feed(*judge, *theirs.back(), std::span(ids[i]).first(static_cast<size_t>(lengths[i])), 0);
  }
  for (const auto& each : {std::vector<int64_t>{1, 1, 1, 1, 1}, {7, 1, 1, 11, 1}, {1, 13, 2, 1, 3}}) {
    std::vector<Row> rows;
    std::vector<Sequence*> sequences;
    Logits expected;
    for (size_t i = 0; i < each.size(); ++i) {
      sequences.push_back(mine[i].get());
      const auto from = static_cast<size_t>(mine[i]->length());
      for (int64_t r = 0; r < each[i]; ++r)
        rows.push_back(
            text_row(static_cast<int>(i), mine[i]->length() + r, ids[i][from + static_cast<size_t>(r)], true));
      const auto alone =
          feed(*judge, *theirs[i], std::span(ids[i]).subspan(from, static_cast<size_t>(each[i])), each[i]);
      expected.insert(expected.end(), alone.begin(), alone.end());
    }
    const auto out = ours->run({.sequences = sequences, .rows = rows}, CancelToken());
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_LE(relative_difference(expected, out->logits), 1e-4);
    for (size_t i = 0; i < each.size(); ++i) mine[i]->commit(static_cast<int>(each[i]));
  }
}

// A step that was given up, at any place in it, leaves nothing behind.
TEST_F(WithOpenVinoStatic, a_cancelled_step_leaves_the_conversation_as_it_was) {
  const RandomModel m = small_model("gemma3", 20);
  const auto ours = graphs(m, {.block_rows = {1, 16}, .chunk_positions = 8, .max_step_rows = 32});
  const auto judge = reference(m);
  ASSERT_TRUE(ours && judge);
  const auto ids = some_tokens(*ours, 100, 5);
  const auto a = new_sequence(*judge), b = new_sequence(*ours);
  feed(*judge, *a, std::span(ids).first(50), 0);
  feed(*ours, *b, std::span(ids).first(50), 0);
  // Cancelled after so many graphs have run, by who watches them.
  class Canceller final : public OpObserver {
   public:
    Canceller(CancelToken& token, int after) : token_(token), left_(after) {}
    void seen(const SeenOp&) override {
      if (--left_ == 0) token_.cancel();
    }

   private:
    CancelToken& token_;
    int left_;
  };
  for (const int after : {1, 2, 4, 7, 9}) {
    CancelToken token;
    Canceller canceller(token, after);
    ours->observe(&canceller);
    std::vector<Row> rows;
    for (int64_t r = 0; r < 30; ++r) rows.push_back(text_row(0, 50 + r, 9, true));
    Sequence* const only = b.get();
    const auto out = ours->run({.sequences = {&only, 1}, .rows = rows}, token);
    ours->observe(nullptr);
    ASSERT_FALSE(out) << after;
    EXPECT_EQ(out.error().code, Code::cancelled);
    EXPECT_EQ(b->length(), 50);
  }
  const auto rest = std::span(ids).subspan(50, 20);
  EXPECT_LE(relative_difference(feed(*judge, *a, rest, 20), feed(*ours, *b, rest, 20)), 1e-4);
}

// Saved and taken up again, by a target of another kind too: the canonical state is all there is.
TEST_F(WithOpenVinoStatic, a_conversation_goes_on_from_its_canonical_state) {
  const RandomModel m = small_model("gemma3", 20);
  const auto ours = graphs(m, {.block_rows = {1, 16}, .chunk_positions = 8, .max_step_rows = 16});
  const auto dynamic = graphs(m, {});
  const auto judge = reference(m);
  ASSERT_TRUE(ours && dynamic && judge);
  const auto ids = some_tokens(*ours, 100, 5);
  for (const int64_t length : {7, 20, 41, 64}) {
    const auto begun = std::span(ids).first(static_cast<size_t>(length)),
               rest = std::span(ids).subspan(static_cast<size_t>(length), 9);
    const auto a = new_sequence(*judge);
    feed(*judge, *a, begun, 0);
    const auto expected = feed(*judge, *a, rest, 9);
    for (Executable* from : {ours.get(), dynamic.get()}) {
      const auto saved = new_sequence(*from);
      feed(*from, *saved, begun, 0);
      StateBlobs state;
      state.tokens = length;
      state.kv = KvFormat::f32;
      ASSERT_TRUE(saved->export_to(state));
      const auto resumed = new_sequence(*ours);
      const auto taken = resumed->import_from(state);
      ASSERT_TRUE(taken) << taken.error().message;
      EXPECT_LE(relative_difference(expected, feed(*ours, *resumed, rest, 9)), 1e-4) << length;
    }
    // And cut back, where the ring still has what is seen.
    const auto back = new_sequence(*ours);
    feed(*ours, *back, std::span(ids).first(static_cast<size_t>(length + 9)), 0);
    ASSERT_EQ(back->truncate(length), length);
    EXPECT_LE(relative_difference(expected, feed(*ours, *back, rest, 9)), 1e-4) << length;
  }
}

}  // namespace
}  // namespace onw::testing
