// Attention inside the graphs, made beside the answers: on a library that does as it is told (tests/fake_openvino), and
// on OpenVINO's CPU device against the graphs without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/shared_library.h"
#include "base/temp_folder.h"
#include "targets/conformance_steps.h"
#include "targets/op_observer.h"
#include "targets/openvino/compile_ahead.h"
#include "targets/openvino/openvino.h"
#include "targets/openvino/testing.h"
#include "targets/rest.h"
#include "tests/logits_kl.h"
#include "tests/random_model.h"

namespace onw::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using What = FusedNews::What;

fs::path beside_the_tests(const char* name) { return this_program().parent_path() / name; }

RandomModel model(const char* family, int layers, int64_t window = 0) {
  nlohmann::json config = tiny_config(family, 320);
  if (std::string_view(family) != "gemma4") config["num_hidden_layers"] = layers;
  if (window > 0) config.update({{"sliding_window", window}, {"sliding_window_pattern", 2}});
  return random_model(config, [](const WeightDecl&) { return WeightFormat::q4g128; });
}

// What was heard, by whoever said it.
class Board {
 public:
  std::function<void(const FusedNews&)> ear() {
    return [this](const FusedNews& news) {
      const std::lock_guard lock(mutex_);
      heard_.push_back(news);
      changed_.notify_all();
    };
  }
  std::vector<FusedNews> all(What what) {
    const std::lock_guard lock(mutex_);
    std::vector<FusedNews> found;
    std::ranges::copy_if(heard_, std::back_inserter(found), [&](const FusedNews& n) { return n.what == what; });
    return found;
  }
  // Until so many were compiled or failed.
  bool wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [&] {
      return std::ranges::count_if(heard_, [](const FusedNews& n) {
               return n.what == What::compiled || n.what == What::failed;
             }) >= static_cast<std::ptrdiff_t>(count);
    });
  }
  bool wait_for_done() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30),
                             [&] { return std::ranges::find(heard_, What::done, &FusedNews::what) != heard_.end(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<FusedNews> heard_;
};

// Which graphs a target runs.
class Ran final : public OpObserver {
 public:
  void seen(const SeenOp& op) override {
    fused += op.label == "body with attention" ? 1 : 0;
    segments += op.label == "body" ? 1 : 0;
  }
  int fused = 0, segments = 0;
};

// ---- By the fake library

// The graphs without attention are compiled once for all tests; each begins with a copy of that store.
class OpenVinoFused : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    told("");
    stores_ = std::make_unique<TempFolder>();
    ASSERT_NE(on_store(*stores_ / "first", {}), nullptr);
  }
  static void TearDownTestSuite() { stores_.reset(); }
  void SetUp() override { told(""); }
  void TearDown() override { ::unsetenv("ONW_FAKE_OPENVINO"); }
  // Only while nothing is being compiled: children read it.
  static void told(const std::string& script) { ::setenv("ONW_FAKE_OPENVINO", script.c_str(), 1); }

  static fs::path fresh_store() {
    static int number = 0;
    const fs::path folder = *stores_ / std::to_string(++number);
    fs::copy(*stores_ / "first", folder);
    return folder;
  }

  // Fused lengths of 16, 32 and 64 positions, for 1 and for 8 rows.
  static constexpr size_t kForms = 6;

  static const RandomModel& small_model() {
    static const RandomModel m = model("qwen3", 1);
    return m;
  }
  static OpenVinoOptions options_on(const fs::path& folder, FusedOptions fused) {
    auto runtime = openvino::Runtime::load(beside_the_tests("libfake_openvino.so"));
    EXPECT_TRUE(runtime) << runtime.error().message;
    OpenVinoOptions options{.runtime = *runtime,
                            .kv = KvFormat::int8,
                            .block_rows = {1, 8},
                            .chunk_positions = 16,
                            .fused = std::move(fused),
                            .platform = "4000",
                            .openvino_device = "NPU",
                            .properties = {{"PERFORMANCE_HINT", "LATENCY"}},
                            .max_context = 64};
    options.blobs = {.folder = folder,
                     .child = {beside_the_tests("compile_child").string()},
                     .model = "small",
                     .weights_digest = "w",
                     .platform = "GPU"};  // one route
    return options;
  }
  static std::unique_ptr<Executable> on_store(const fs::path& folder, FusedOptions fused) {
    const RandomModel& m = small_model();
    auto made = make_openvino(m.program, m.weights, options_on(folder, std::move(fused)));
    EXPECT_TRUE(made) << made.error().message;
    return made ? std::move(*made) : nullptr;
  }

  std::unique_ptr<Executable> target(int variants = 2, int64_t at_once = 64) {
    return on_store(fresh_store(),
                    {.variants = variants, .layers = 0, .at_once_positions = at_once, .on_news = board_.ear()});
  }

  // So many rows in a step of their own, after a rest; how many of its graphs were of either kind.
  static Ran step_rested(Executable& target, Sequence& sequence, int64_t rows) {
    rest_until_done(target);
    return step(target, sequence, rows);
  }
  static Ran step(Executable& target, Sequence& sequence, int64_t rows) {
    Ran ran;
    target.observe(&ran);
    extend(target, sequence, Tokens(static_cast<size_t>(rows), 3));
    target.observe(nullptr);
    return ran;
  }

  Board board_;
  static inline std::unique_ptr<TempFolder> stores_;
};

TEST_F(OpenVinoFused, graphs_are_compiled_the_shortest_first_and_loaded_in_a_rest) {
  const auto made = target();
  ASSERT_TRUE(board_.wait_for(kForms));
  std::vector<std::pair<int64_t, int64_t>> order;
  for (const FusedNews& n : board_.all(What::compiled)) order.emplace_back(n.length, n.rows);
  using P = std::pair<int64_t, int64_t>;
  EXPECT_THAT(order, ElementsAre(P{16, 1}, P{16, 8}, P{32, 1}, P{32, 8}, P{64, 1}, P{64, 8}));
  EXPECT_TRUE(board_.all(What::loaded).empty());
  EXPECT_TRUE(upkeep(*made).more_to_come);
  const auto sequence = new_sequence(*made);
  const Ran first = step_rested(*made, *sequence, 1);
  EXPECT_EQ(first.fused, 1);  // both ways, to compare
  EXPECT_GT(first.segments, 0);
  const Ran second = step(*made, *sequence, 1);
  EXPECT_EQ(second.fused, 1);
  EXPECT_EQ(second.segments, 0);
  ASSERT_EQ(board_.all(What::loaded).size(), 2U);  // for 1 row, then for 8
  EXPECT_EQ(board_.all(What::loaded)[0].length, 16);
  EXPECT_EQ(board_.all(What::loaded)[0].rows, 1);
  EXPECT_EQ(board_.all(What::loaded)[1].length, 16);
  EXPECT_EQ(upkeep(*made).improvements, 2);
}

// Loading takes seconds: an answer under way is never held by it, however long, and goes on by the segments.
TEST_F(OpenVinoFused, nothing_is_loaded_while_an_answer_is_under_way) {
  const auto made = target(4);
  const auto sequence = new_sequence(*made);
  step(*made, *sequence, 1);
  ASSERT_TRUE(board_.wait_for(kForms));
  told("import=slow;import.ms=200");
  for (int i = 0; i < 30; ++i) EXPECT_EQ(step(*made, *sequence, 1).fused, 0);
  EXPECT_TRUE(board_.all(What::loaded).empty());
  told("");
  EXPECT_EQ(step_rested(*made, *sequence, 1).fused, 1);
  EXPECT_EQ(board_.all(What::loaded)[0].length, 32) << "the shortest that covers where the answer was";
  EXPECT_EQ(board_.all(What::loaded).size(), 4U) << "and the next, where there is room";
}

// A step that comes while a graph is being loaded waits for it, for it must not run beside that; nothing else is begun.
TEST_F(OpenVinoFused, a_step_that_comes_while_a_graph_is_loaded_runs_after_it) {
  const auto made = target(4);
  ASSERT_TRUE(board_.wait_for(kForms));
  told("import=slow;import.ms=200");
  rest(*made, true);
  while (!upkeep(*made).busy) std::this_thread::yield();
  const auto sequence = new_sequence(*made);
  EXPECT_EQ(step(*made, *sequence, 1).fused, 1);
  EXPECT_EQ(board_.all(What::loaded).size(), 1U);
  EXPECT_FALSE(upkeep(*made).busy);
}

// A prompt's rows, of which none wants logits, are looked at by those of the last row, which nobody gets.
TEST_F(OpenVinoFused, rows_without_logits_show_whether_a_graph_computes_what_the_segments_do) {
  const auto made = target();
  ASSERT_TRUE(board_.wait_for(kForms));
  rest_until_done(*made);
  const auto sequence = new_sequence(*made);
  Sequence* const only = sequence.get();
  for (int time = 0; time < 2; ++time) {
    Ran ran;
    made->observe(&ran);
    std::vector<Row> rows;
    for (int64_t r = 0; r < 8; ++r) rows.push_back(text_row(0, sequence->length() + r, 3, false));
    const auto out = made->run({.sequences = {&only, 1}, .rows = rows}, CancelToken());
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_TRUE(out->logits.empty());
    sequence->commit(8);
    EXPECT_EQ(ran.fused, 1);
    EXPECT_EQ(ran.segments > 0, time == 0);
  }
}

// For a device that is not here: the same graphs to the byte, or nobody would find them.
TEST_F(OpenVinoFused, a_target_takes_all_that_was_compiled_ahead_and_compiles_nothing) {
  const fs::path folder = *stores_ / "ahead";
  const FusedOptions fused{.variants = 2, .layers = 0, .at_once_positions = 32, .on_news = board_.ear()};
  const auto stored = openvino::compile_everything_into_store(small_model().program, small_model().weights,
                                                              options_on(folder, fused), "4000");
  ASSERT_TRUE(stored) << stored.error().message;
  EXPECT_EQ(stored->fused_tokens, 32);
  EXPECT_EQ(stored->fused_trouble, "");
  std::vector<std::pair<std::string, int64_t>> graphs;
  for (const openvino::Blob& b : stored->blobs) graphs.emplace_back(b.record.segment, b.record.rows);
  using P = std::pair<std::string, int64_t>;
  EXPECT_THAT(graphs,
              ElementsAre(P{"body.0", 1}, P{"body.1", 1}, P{"head", 1}, P{"body.0", 8}, P{"body.1", 8}, P{"head", 8},
                          P{"attention.16", 1}, P{"attention.32", 1}, P{"attention.16", 8}, P{"attention.32", 8},
                          P{"fused.16", 1}, P{"fused.16", 8}, P{"fused.32", 1}, P{"fused.32", 8}));
  told("compile=crash");
  const auto made = on_store(folder, fused);
  ASSERT_NE(made, nullptr);
  ASSERT_TRUE(board_.wait_for_done());
  EXPECT_EQ(board_.all(What::compiled).size(), 4U);
  EXPECT_TRUE(board_.all(What::failed).empty());
  const auto sequence = new_sequence(*made);
  EXPECT_EQ(step_rested(*made, *sequence, 1).fused, 1);
}

// What cannot be had of them is told, and the others stay.
TEST_F(OpenVinoFused, graphs_with_attention_inside_that_do_not_compile_ahead_leave_the_others) {
  const FusedOptions fused{.variants = 2, .layers = 0, .at_once_positions = 64};
  const auto ahead = [&](FusedOptions f) {
    return openvino::compile_everything_into_store(small_model().program, small_model().weights,
                                                   options_on(*stores_ / "trouble", std::move(f)), "4000");
  };
  told("compile=fail;compile.where=k_new");
  const auto stored = ahead(fused);
  ASSERT_TRUE(stored) << stored.error().message;
  EXPECT_EQ(stored->blobs.size(), 10U);
  EXPECT_EQ(stored->fused_tokens, 0);
  EXPECT_THAT(stored->fused_trouble, HasSubstr("Compiler returned an error"));
  const auto without = ahead({});
  ASSERT_TRUE(without);
  EXPECT_EQ(without->fused_trouble, "") << "nobody wants them";
}

// A quarter of a length is when it is made: 32 positions behind 8, 64 behind 16.
TEST_F(OpenVinoFused, longer_graphs_are_compiled_when_conversations_come_near) {
  const auto made = target(2, 0);
  ASSERT_TRUE(board_.wait_for(2));
  ASSERT_TRUE(board_.wait_for_done());
  EXPECT_EQ(board_.all(What::compiled).size(), 2U);
  const auto sequence = new_sequence(*made);
  step(*made, *sequence, 8);
  step(*made, *sequence, 1);
  ASSERT_TRUE(board_.wait_for(4));
  EXPECT_EQ(board_.all(What::compiled)[3].length, 32);
  step(*made, *sequence, 8);
  step(*made, *sequence, 1);
  ASSERT_TRUE(board_.wait_for(kForms));
}

// At 16 cached positions the shortest still covers a step; at 17 the next one takes over.
TEST_F(OpenVinoFused, a_rest_is_wanted_where_a_graph_waits_to_be_loaded_and_no_longer) {
  told("compile=slow;compile.where=k_new");
  const auto made = target();
  EXPECT_TRUE(upkeep(*made).more_to_come);
  EXPECT_FALSE(upkeep(*made).wants_rest) << "nothing is compiled yet";
  ASSERT_TRUE(board_.wait_for(1));
  EXPECT_TRUE(upkeep(*made).wants_rest);
  rest(*made, true);
  while (upkeep(*made).wants_rest) std::this_thread::yield();
  EXPECT_EQ(board_.all(What::loaded).size(), 1U);
}

TEST_F(OpenVinoFused, the_shortest_that_covers_a_step_computes_it) {
  const auto made = target(4);
  ASSERT_TRUE(board_.wait_for(kForms));
  rest_until_done(*made);
  const auto sequence = new_sequence(*made);
  EXPECT_EQ(board_.all(What::loaded).size(), 4U);  // of 16 and of 32 positions
  step(*made, *sequence, 1);
  for (int i = 1; i < 17; ++i) EXPECT_EQ(step(*made, *sequence, 1).segments, 0) << i;
  EXPECT_GT(step(*made, *sequence, 1).segments, 0) << "the first step of the next one, to compare";
  EXPECT_EQ(step(*made, *sequence, 1).segments, 0);
  ASSERT_EQ(sequence->truncate(9), 9);
  EXPECT_EQ(step(*made, *sequence, 1).segments, 0);
  EXPECT_EQ(board_.all(What::loaded).size(), 4U);
}

TEST_F(OpenVinoFused, no_more_are_loaded_than_allowed_and_one_that_rested_goes) {
  const auto made = target(1);
  ASSERT_TRUE(board_.wait_for(kForms));
  const auto a = new_sequence(*made), b = new_sequence(*made);
  for (int i = 0; i < 17; ++i) step_rested(*made, *a, 1);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(step_rested(*made, *a, 1).fused, 0) << i;  // the shortest has not rested yet
  step_rested(*made, *a, 1);
  ASSERT_EQ(board_.all(What::loaded).size(), 2U);
  EXPECT_EQ(board_.all(What::loaded)[1].length, 32);
  step_rested(*made, *b, 1);                         // both ways, to compare
  EXPECT_EQ(step_rested(*made, *b, 1).segments, 0);  // a longer one covers a short sequence, too
  EXPECT_EQ(board_.all(What::loaded).size(), 2U);
}

// Each holds the weights once more.
TEST_F(OpenVinoFused, memory_is_counted_for_as_many_as_may_be_loaded) {
  const int64_t without = target(0)->need(64, 1).weights_bytes;
  EXPECT_EQ(target(2)->need(64, 1).weights_bytes, 2 * without);  // beside two numbers of rows
}

TEST_F(OpenVinoFused, rows_of_several_sequences_go_through_the_segments_together) {
  const auto made = target();
  ASSERT_TRUE(board_.wait_for(kForms));
  rest_until_done(*made);
  const auto a = new_sequence(*made), b = new_sequence(*made);
  Ran ran;
  made->observe(&ran);
  run_together(*made, {{a.get(), {1, 2}}, {b.get(), {3}}});
  EXPECT_EQ(ran.fused, 0);
  EXPECT_GT(ran.segments, 0);
}

// Answers go on while a compiler takes its time, and its process ends with the target.
TEST_F(OpenVinoFused, a_slow_compiler_keeps_nobody_waiting) {
  told("compile=slow;compile.where=k_new");
  const auto start = std::chrono::steady_clock::now();
  {
    const auto made = target();
    const auto sequence = new_sequence(*made);
    for (int i = 0; i < 3; ++i) EXPECT_GT(step(*made, *sequence, 5).segments, 0);
    EXPECT_EQ(sequence->length(), 15);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
}

TEST_F(OpenVinoFused, a_compiler_that_fails_is_remembered_and_the_segments_answer) {
  for (const auto& [how, says] :
       {std::pair("crash", "crashed"), std::pair("oom", "bad_alloc"), std::pair("fail", "returned an error")}) {
    const fs::path folder = fresh_store();
    told(fmt::format("compile={};compile.where=k_new", how));
    // The second time by a compiler that is well again, and is not asked; but for memory, of which there may be more.
    for (int run = 0; run < (std::string_view(how) == "oom" ? 1 : 2); ++run) {
      Board board;
      const auto made = on_store(folder, {.variants = 2, .layers = 0, .at_once_positions = 64, .on_news = board.ear()});
      ASSERT_TRUE(board.wait_for_done());
      EXPECT_TRUE(board.all(What::compiled).empty());
      ASSERT_EQ(board.all(What::failed).size(), 2U);
      for (const FusedNews& n : board.all(What::failed)) {
        EXPECT_EQ(n.length, 16) << how;  // a longer one would not compile either
        EXPECT_THAT(n.why, HasSubstr(says));
      }
      const auto sequence = new_sequence(*made);
      EXPECT_GT(step(*made, *sequence, 3).segments, 0) << how;
      EXPECT_EQ(sequence->length(), 3);
      told("");
    }
  }
}

// A device that vanishes while a graph is loaded or runs: the step is computed without it.
TEST_F(OpenVinoFused, what_fails_when_loaded_or_run_is_given_up_and_the_step_goes_on) {
  for (const char* how : {"import=fail", "infer=lost;infer.where=k_new", "infer=oom;infer.where=k_new"}) {
    Board board;
    const auto made =
        on_store(fresh_store(), {.variants = 2, .layers = 0, .at_once_positions = 64, .on_news = board.ear()});
    ASSERT_TRUE(board.wait_for(kForms));
    const auto sequence = new_sequence(*made);
    told(how);
    const Ran ran = step_rested(*made, *sequence, 4);
    EXPECT_EQ(ran.fused, 0) << how;
    EXPECT_GT(ran.segments, 0) << how;
    EXPECT_EQ(sequence->length(), 4) << how;
    ASSERT_FALSE(board.all(What::failed).empty()) << how;
    EXPECT_EQ(board.all(What::failed)[0].length, 16);
    told("");
    if (std::string_view(how) == "import=fail") continue;         // all of them are given up
    EXPECT_EQ(step_rested(*made, *sequence, 4).fused, 1) << how;  // by a longer one
    EXPECT_EQ(board.all(What::loaded).back().length, 32);
  }
}

// One that computed well before, and then does not: the whole step is computed again.
TEST_F(OpenVinoFused, a_proven_graph_that_errs_is_given_up_and_its_step_computed_again) {
  const auto made = target();
  ASSERT_TRUE(board_.wait_for(kForms));
  const auto sequence = new_sequence(*made);
  step_rested(*made, *sequence, 1);
  ASSERT_EQ(step(*made, *sequence, 1).segments, 0);
  told("infer=lost;infer.where=k_new");
  const Ran ran = step(*made, *sequence, 1);
  EXPECT_GT(ran.segments, 0);
  EXPECT_EQ(sequence->length(), 3);
  EXPECT_THAT(board_.all(What::failed).back().why, HasSubstr("DEVICE_LOST"));
}

// ---- On OpenVINO's CPU device

class WithOpenVinoFused : public ::testing::Test {
 protected:
  void SetUp() override {
    if (openvino_runtime() == nullptr) GTEST_SKIP() << kNoOpenVino;
  }

  // Without a store: what a step wants is compiled when it wants it.
  static std::unique_ptr<Executable> target(const RandomModel& m, KvFormat kv, FusedOptions fused) {
    OpenVinoOptions options{
        .runtime = openvino_runtime(), .kv = kv, .exact = true, .block_rows = {4}, .chunk_positions = 16};
    options.fused = std::move(fused);
    options.threads = 2;
    options.isa = available_isas(cpu_features()).back();
    options.max_context = 64;
    auto made = make_openvino(m.program, m.weights, options);
    EXPECT_TRUE(made) << made.error().message;
    return made ? std::move(*made) : nullptr;
  }

  // By a sequence alone, which fused graphs serve, or beside another one, which they do not.
  static Logits logits(Executable& target, const Tokens& tokens, bool beside_another) {
    const auto sequence = new_sequence(target), other = new_sequence(target);
    const size_t cuts[] = {3, 4, 4, 1, 4, 1, 1, 3, 4, 4};  // over the edges at 16 and 32 positions
    Logits all;
    for (size_t at = 0, i = 0; at < tokens.size(); ++i) {
      const size_t count = std::min(cuts[i % std::size(cuts)], tokens.size() - at);
      const Tokens piece(tokens.begin() + static_cast<std::ptrdiff_t>(at),
                         tokens.begin() + static_cast<std::ptrdiff_t>(at + count));
      std::vector<Segment> segments = {{sequence.get(), piece}};
      if (beside_another && count == 4) segments = {{sequence.get(), {piece.begin(), piece.begin() + 3}}};
      if (beside_another) segments.push_back({other.get(), {7}});
      at += segments[0].tokens.size();
      rest_until_done(target);
      const auto rows = run_together(target, segments);
      for (size_t r = 0; r < segments[0].tokens.size(); ++r) all.insert(all.end(), rows[r].begin(), rows[r].end());
    }
    return all;
  }
};

// New rows are rounded in the graph as the host rounds them; a window's ring beside the chunks turns over, and last
// layers read what the graph's first have made.
TEST_F(WithOpenVinoFused, give_what_the_segments_give) {
  for (const auto& [family, layers, kv, bound] : {std::tuple("qwen2", 1, KvFormat::f32, 1e-9),
                                                  {"gemma3", 2, KvFormat::int8, 1e-5},
                                                  {"gemma4", 4, KvFormat::int8, 1e-5}}) {
    const RandomModel m = model(family, layers, layers > 1 ? 12 : 0);
    Board board;
    const auto both = target(m, kv, {.variants = 4, .layers = 0, .at_once_positions = 64, .on_news = board.ear()});
    ASSERT_TRUE(both && board.wait_for(3));
    const Tokens tokens = some_tokens(*both, 44, 5);
    Ran apart, fused;
    both->observe(&apart);
    const Logits expected = logits(*both, tokens, true);
    both->observe(&fused);
    const Logits got = logits(*both, tokens, false);
    EXPECT_EQ(apart.fused, 0);
    EXPECT_GT(fused.fused, 12);
    EXPECT_EQ(board.all(What::loaded).size(), 3U);
    EXPECT_EQ(fused.segments, 3 * (layers + 1));  // the first rows of each alone
    EXPECT_TRUE(board.all(What::failed).empty());
    EXPECT_LE(std::fabs(mean_kl(expected, got, m.program.vocabulary)), bound) << family;
    EXPECT_NE(largest_difference(expected, got), 0) << family << ": the same graphs";
  }
}

}  // namespace
}  // namespace onw::testing
