// What the static graphs ask of a device, by a library that counts (tests/fake_openvino): how many requests there are,
// what is set when, where memory lies, what is compiled anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/shared_library.h"
#include "targets/conformance_steps.h"
#include "targets/openvino/openvino.h"
#include "targets/openvino/platforms.h"
#include "targets/rest.h"
#include "tests/random_model.h"

namespace onw::testing {
namespace {

std::filesystem::path fake_library() { return this_program().parent_path() / "libfake_openvino.so"; }

int64_t counted(const char* name) {
  const auto library = SharedLibrary::open(fake_library());
  EXPECT_TRUE(library) << library.error().message;
  using Count = int64_t (*)(const char*);
  return reinterpret_cast<Count>(library->symbol("fake_openvino_count"))(name);
}

class OpenVinoRequests : public ::testing::Test {
 protected:
  void SetUp() override { told(""); }
  void TearDown() override { ::unsetenv("ONW_FAKE_OPENVINO"); }
  static void told(const std::string& script) { ::setenv("ONW_FAKE_OPENVINO", script.c_str(), 1); }

  static std::unique_ptr<Executable> model(OpenVinoOptions options, const char* family = "llama", int layers = 2) {
    nlohmann::json config = tiny_config(family, 320);
    config["num_hidden_layers"] = layers;
    config["max_position_embeddings"] = 2048;
    if (std::string_view(family) == "gemma3") config.update({{"sliding_window", 20}, {"sliding_window_pattern", 2}});
    const RandomModel m = random_model(config, [](const WeightDecl& w) {
      return w.role == WeightRole::expert ? WeightFormat::q4c : WeightFormat::q4g128;
    });
    auto runtime = openvino::Runtime::load(fake_library());
    EXPECT_TRUE(runtime) << runtime.error().message;
    options.runtime = *runtime;
    options.platform = "4000";
    options.openvino_device = "NPU";
    options.properties = {{"PERFORMANCE_HINT", "LATENCY"}};
    auto target = make_openvino(m.program, m.weights, options);
    EXPECT_TRUE(target) << target.error().message;
    return target ? std::move(*target) : nullptr;
  }

  static void run_rows(Executable& target, Sequence& sequence, int rows) {
    std::vector<Row> all;
    for (int r = 0; r < rows; ++r) all.push_back(text_row(0, sequence.length() + r, 3, r + 1 == rows));
    Sequence* const only = &sequence;
    const auto out = target.run({.sequences = {&only, 1}, .rows = all}, CancelToken());
    ASSERT_TRUE(out) << out.error().message;
    sequence.commit(rows);
  }
};

TEST_F(OpenVinoRequests, are_wired_once_and_a_step_of_decoding_sets_nothing) {
  const auto target = model({.kv = KvFormat::int8, .block_rows = {1, 8}, .chunk_positions = 64});
  ASSERT_NE(target, nullptr);
  const auto sequence = new_sequence(*target);
  run_rows(*target, *sequence, 8);
  run_rows(*target, *sequence, 1);
  const int64_t before = counted("set"), requests = counted("requests");
  for (int i = 0; i < 20; ++i) run_rows(*target, *sequence, 1);
  EXPECT_EQ(counted("set"), before);
  EXPECT_EQ(counted("requests"), requests);
}

TEST_F(OpenVinoRequests, read_and_write_the_devices_own_memory) {
  for (const KvFormat kv : {KvFormat::int8, KvFormat::f16}) {
    const int64_t before = counted("copied"), set = counted("set");
    const auto target = model({.kv = kv, .block_rows = {1, 8}, .chunk_positions = 16}, "gemma3");
    ASSERT_NE(target, nullptr);
    const auto sequence = new_sequence(*target);
    for (int i = 0; i < 9; ++i) run_rows(*target, *sequence, i % 2 == 0 ? 7 : 1);
    EXPECT_EQ(counted("copied"), before);
    EXPECT_GT(counted("set"), set);
  }
}

// A state is read where the last step left it, and the new one written elsewhere: two ports change their place in a
// step of decoding, for each convolution and each delta rule, and nothing is copied.
TEST_F(OpenVinoRequests, swap_the_memory_of_states_inside_graphs) {
  const int64_t copied = counted("copied");
  const auto target = model({.kv = KvFormat::f16, .block_rows = {1, 8}, .chunk_positions = 32}, "qwen3_5");
  ASSERT_NE(target, nullptr);
  const auto sequence = new_sequence(*target);
  run_rows(*target, *sequence, 7);
  for (int i = 0; i < 3; ++i) run_rows(*target, *sequence, 1);
  constexpr int kDeltaLayers = 1, kSteps = 20;  // over an edge, within a chunk of the cache
  const int64_t before = counted("set"), requests = counted("requests");
  for (int i = 0; i < kSteps; ++i) run_rows(*target, *sequence, 1);
  EXPECT_GT(counted("set"), before);
  EXPECT_LE(counted("set"), before + kSteps * kDeltaLayers * 2 * 2);
  EXPECT_EQ(counted("requests"), requests);
  EXPECT_EQ(counted("copied"), copied);
}

TEST_F(OpenVinoRequests, of_graphs_with_states_may_be_made_for_each_run) {
  const int64_t before = counted("requests");
  const auto target = model({.block_rows = {1, 8}, .chunk_positions = 32, .resident_graphs = {2, 0}}, "qwen3_5");
  ASSERT_NE(target, nullptr);
  const auto sequence = new_sequence(*target);
  for (int i = 0; i < 4; ++i) run_rows(*target, *sequence, i % 2 == 0 ? 7 : 1);
  EXPECT_EQ(sequence->length(), 16);
  EXPECT_LE(counted("requests") - before, 2 + 2) << "the head, one graph, and attention for either number of rows";
}

TEST_F(OpenVinoRequests, use_our_memory_where_the_device_has_none) {
  told("context=none");
  const int64_t before = counted("copied");
  const auto target = model({.block_rows = {1, 8}, .chunk_positions = 16});
  ASSERT_NE(target, nullptr);
  run_rows(*target, *new_sequence(*target), 7);
  EXPECT_GT(counted("copied"), before);
}

// A deep model with few requests: the graphs beyond them make theirs for each run, attention binds its own anew, and of
// graphs with attention inside one goes before another comes.
TEST_F(OpenVinoRequests, never_are_more_than_the_driver_allows) {
  ASSERT_EQ(counted("requests"), 0);
  counted("from_now_on");
  openvino::Platform small = *openvino::find_platform("4000");
  small.requests = 11;
  small.attention_requests = 3;
  small.fused_requests = 2;
  constexpr int kLayers = 6;
  const auto plan = plan_resident(small, {.segments = kLayers + 1, .attentions = kLayers, .weight_bytes = 1});
  ASSERT_TRUE(plan);
  ASSERT_FALSE(plan->all_resident());
  std::promise<void> fused;
  const auto hear = [&](const FusedNews& news) {
    if (news.what == FusedNews::What::done) fused.set_value();
  };
  const auto target = model({.kv = KvFormat::int8,
                             .block_rows = {1, 8},
                             .chunk_positions = 16,
                             .resident_graphs = plan->resident_graphs,
                             .attention_requests = plan->attention_requests,
                             .fused = {.variants = plan->fused_variants,
                                       .layers = plan->fused_layers,
                                       .at_once_positions = 2048,
                                       .on_news = hear}},
                            "llama", kLayers);
  ASSERT_NE(target, nullptr);
  fused.get_future().wait();
  const auto a = new_sequence(*target), b = new_sequence(*target);
  for (int i = 0; i < 10; ++i) {
    rest_until_done(*target);
    run_rows(*target, *a, 7);
    run_rows(*target, *b, 1);
  }
  EXPECT_LE(counted("most_requests"), small.requests);
  EXPECT_GE(counted("requests"), plan->requests() - 1);  // and no fewer than that stay
}

// As DESIGN has it: chunks of fixed lengths, so a longer context adds at most those that a shorter one had not.
TEST_F(OpenVinoRequests, of_another_context_compile_nothing_again) {
  const auto compiled_with = [](int64_t context) {
    const int64_t before = counted("distinct");
    const auto target = model({.block_rows = {1, 8}, .chunk_positions = 64, .max_context = context}, "qwen3");
    EXPECT_NE(target, nullptr);
    const auto sequence = new_sequence(*target);
    while (sequence->length() + 8 <= std::min<int64_t>(context, 500)) run_rows(*target, *sequence, 8);
    return counted("distinct") - before;
  };
  EXPECT_GT(compiled_with(1024), 0);
  EXPECT_EQ(compiled_with(1024), 0);
  EXPECT_EQ(compiled_with(300), 0);   // nothing for a shorter one
  EXPECT_EQ(compiled_with(2048), 2);  // the chunk of 16 x 64, for both numbers of rows: nothing else
}

// Attention is asked for session by session. Of requests and compiled graphs that is the cheapest: none for a number of
// sessions, each request stays with the chunk of its session, and a step in which the same ones decode sets nothing. A
// graph for N sessions would be bound to all of their chunks, and anew whenever one comes or goes.
TEST_F(OpenVinoRequests, of_several_sessions_stay_with_their_chunks_and_need_no_graphs_of_their_own) {
  constexpr int kLayers = 2, kSessions = 4;
  const auto target = model({.kv = KvFormat::int8, .block_rows = {1, 8}, .chunk_positions = 64}, "llama", kLayers);
  ASSERT_NE(target, nullptr);
  const int64_t compiled = counted("compiled"), before = counted("requests");
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (int i = 0; i < kSessions; ++i) sequences.push_back(new_sequence(*target));
  const auto decode = [&](int sessions) {
    std::vector<Sequence*> all;
    std::vector<Row> rows;
    for (int i = 0; i < sessions; ++i) {
      all.push_back(sequences[static_cast<size_t>(i)].get());
      rows.push_back(text_row(i, all.back()->length(), 3, true));
    }
    ASSERT_TRUE(target->run({.sequences = all, .rows = rows}, CancelToken()));
    for (Sequence* s : all) s->commit(1);
  };
  decode(kSessions);
  EXPECT_EQ(counted("requests") - before, kSessions * kLayers) << "one for each chunk that is read";
  const int64_t set = counted("set"), runs = counted("runs");
  for (int i = 0; i < 10; ++i) decode(kSessions);
  EXPECT_EQ(counted("set"), set) << "nothing is bound anew";
  EXPECT_EQ(counted("runs") - runs, 10 * (kLayers + 1 + 1 + kSessions * kLayers)) << "segments, head, attention";
  decode(kSessions - 1);  // the last one is gone: the others stay as they are
  EXPECT_EQ(counted("set"), set);
  EXPECT_EQ(counted("compiled"), compiled);
}

// Every logit of a router is the same here, so each token takes the first experts.
TEST_F(OpenVinoRequests, of_experts_that_stay_set_nothing_and_read_the_devices_own_memory) {
  constexpr int kLayers = 3;
  const OpenVinoOptions options{.block_rows = {1, 8}, .chunk_positions = 64, .expert_requests = 8};
  const int64_t copied = counted("copied");
  const auto target = model(options, "qwen3_moe", kLayers);
  ASSERT_NE(target, nullptr);
  const auto sequence = new_sequence(*target);
  run_rows(*target, *sequence, 40);
  run_rows(*target, *sequence, 1);
  const int64_t set = counted("set"), runs = counted("runs"), requests = counted("requests");
  for (int i = 0; i < 10; ++i) run_rows(*target, *sequence, 1);
  EXPECT_EQ(counted("set"), set);
  EXPECT_EQ(counted("runs") - runs, 10 * (2 * kLayers + 1 + 1 + kLayers + kLayers)) << "segments, head, both others";
  EXPECT_EQ(counted("requests"), requests);
  EXPECT_EQ(counted("copied"), copied);
}

// Those of a hybrid get all rows of a step, though its states go from block to block.
TEST_F(OpenVinoRequests, of_experts_are_few_where_a_step_has_several_blocks) {
  for (const char* family : {"qwen3_moe", "qwen3_5_moe", "lfm2_moe"}) {
    const auto target = model({.block_rows = {1, 8}, .chunk_positions = 64, .expert_requests = 8}, family);
    ASSERT_NE(target, nullptr);
    constexpr int kBlocks = 5;
    const auto runs_in_steps_of = [&](int rows) {
      const auto sequence = new_sequence(*target);
      const int64_t before = counted("runs");
      for (int done = 0; done < 8 * kBlocks; done += rows) run_rows(*target, *sequence, rows);
      return counted("runs") - before;
    };
    const int64_t heads_less = kBlocks - 1;
    EXPECT_LT(runs_in_steps_of(8 * kBlocks) + heads_less, runs_in_steps_of(8)) << family;
  }
}

TEST_F(OpenVinoRequests, of_experts_are_no_more_than_they_may_be_and_the_first_layers_keep_theirs) {
  constexpr int kLayers = 6, kMost = 3;
  const auto made_with = [&](int most) {
    const int64_t before = counted("requests");
    const auto target =
        model({.block_rows = {1, 8}, .chunk_positions = 64, .expert_requests = most}, "qwen3_moe", kLayers);
    EXPECT_NE(target, nullptr);
    const auto sequence = new_sequence(*target);
    for (int i = 0; i < 3; ++i) run_rows(*target, *sequence, i == 1 ? 40 : 1);
    run_rows(*target, *sequence, 1);
    const int64_t set = counted("set");
    run_rows(*target, *sequence, 1);
    // gate and up, and down, of three experts for every layer but those that kept their request
    EXPECT_EQ(counted("set") - set, most >= kLayers ? 0 : (kLayers - most + 1) * 3 * 2) << most;
    return counted("requests") - before;
  };
  EXPECT_EQ(made_with(20) - made_with(kMost), kLayers + 2 - kMost) << "a layer's each, and two in turn";
}

TEST_F(OpenVinoRequests, compile_nothing_in_a_step) {
  const auto target = model({.block_rows = {1, 8}, .chunk_positions = 16}, "gemma3");
  ASSERT_NE(target, nullptr);
  const int64_t before = counted("compiled");
  const auto sequence = new_sequence(*target);
  while (sequence->length() < 700) run_rows(*target, *sequence, 8);
  EXPECT_EQ(counted("compiled"), before);
}

}  // namespace
}  // namespace onw::testing
