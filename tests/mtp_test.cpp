// The layer that predicts one token further: its logits against those of the library's own decoder layer, and that its
// state follows the model's through everything that a conversation does.
#include "runtime/mtp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/temp_folder.h"
#include "convert/convert.h"
#include "models/registry.h"
#include "runtime/load.h"
#include "runtime/testing/engine_driver.h"
#include "targets/reference/reference.h"
#include "tests/golden.h"
#include "tests/tiny_model.h"
#include "tests/tiny_weights.h"

namespace onw::testing {
namespace {

constexpr double kTolerance = 1e-4;

std::string test_name(const ::testing::TestParamInfo<std::filesystem::path>& info) {
  std::string name = info.param.stem().string();
  std::ranges::replace(name, '-', '_');
  return name;
}

std::filesystem::path goldens() { return std::filesystem::path(ONW_SOURCE_DIR) / "tests" / "goldens" / "mtp"; }

Golden load(const std::filesystem::path& path) {
  auto golden = read_golden(path);
  EXPECT_TRUE(golden) << golden.error().message;
  return golden ? std::move(*golden) : Golden();
}

int32_t likeliest(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

CancelToken& never() {
  static CancelToken token;
  return token;
}

// Runs tokens of `ids` from the sequence's length on, up to `end`, all of which want their hidden state.
void run_to(Executable& target, Sequence& sequence, std::span<const int32_t> ids, int64_t end) {
  std::vector<Row> rows;
  for (int64_t i = sequence.length(); i < end; ++i) {
    rows.push_back(text_row(0, i, ids[static_cast<size_t>(i)], true));
    rows.back().wants_hidden = true;
  }
  Sequence* const all = &sequence;
  const auto outputs = target.run({.sequences = {&all, 1}, .rows = rows}, never());
  ASSERT_TRUE(outputs) << outputs.error().message;
  sequence.commit(static_cast<int>(rows.size()));
}

// The layer's logits for what follows `next`, and one further for each more of `count`.
std::vector<std::vector<float>> guesses(Mtp& mtp, Sequence& sequence, int32_t next, int count) {
  std::vector<std::vector<float>> rows;
  Guesses wanted{.sequence = &sequence, .next = next, .count = count};
  wanted.draw = [&](std::span<const float> logits, int) {
    rows.emplace_back(logits.begin(), logits.end());
    return likeliest(logits);
  };
  const auto done = mtp.guess({&wanted, 1}, false, never());
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(wanted.tokens.size(), rows.size());
  return rows;
}

class MtpGoldens : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    golden_ = load(GetParam());
    const auto config = nlohmann::json::parse(golden_.config);
    auto program = build_program(config);
    ASSERT_TRUE(program) << program.error().message;
    auto layer = build_mtp_program(config);
    ASSERT_TRUE(layer && *layer) << layer.error().message;
    Program all = *program;  // one set of weights for both
    for (const WeightDecl& w : (*layer)->weights)
      if (all.weight(w.name) == nullptr) all.weights.push_back(w);
    const auto weights = tiny_weights(golden_, all);
    ASSERT_TRUE(weights) << weights.error().message;
    auto model = make_reference(*program, *weights), further = make_reference(**layer, *weights);
    ASSERT_TRUE(model && further);
    auto mtp = make_mtp(std::move(*model), std::move(*further), 0);
    ASSERT_TRUE(mtp) << mtp.error().message;
    mtp_ = std::move(*mtp);
  }

  std::span<const float> row(int64_t i) const {
    return std::span(golden_.logits)
        .subspan(static_cast<size_t>(i * golden_.vocabulary), static_cast<size_t>(golden_.vocabulary));
  }

  Golden golden_;
  std::unique_ptr<Mtp> mtp_;
};

INSTANTIATE_TEST_SUITE_P(Goldens, MtpGoldens, ::testing::ValuesIn(golden_paths(goldens())), test_name);

TEST_P(MtpGoldens, give_the_logits_of_the_librarys_own_layer) {
  const auto T = static_cast<int64_t>(golden_.ids.size());
  auto sequence = mtp_->new_sequence().value();
  // In uneven pieces: hidden states queue, and are run when a guess is wanted.
  int64_t at = 0;
  for (const int64_t piece : golden_.segments) {
    const int64_t end = std::min(at + piece, T - 1);
    if (end == at) break;
    run_to(*mtp_, *sequence, golden_.ids, end);
    const bool last = end == T - 1;
    const auto got = guesses(*mtp_, *sequence, golden_.ids[static_cast<size_t>(end)], last ? 2 : 1);
    ASSERT_EQ(got.size(), last ? 2 : 1);
    EXPECT_LE(relative_error(got[0], row(end - 1)), kTolerance) << "after " << end;
    if (last) EXPECT_LE(relative_error(got[1], row(T - 1)), kTolerance) << "one further";
    at = end;
  }
  EXPECT_EQ(at, T - 1);
}

// ---- The layer's state, on the CPU and the reference

struct Made {
  TempFolder folder;
  Golden golden;
  std::unique_ptr<Executable> executable;
  Mtp& mtp() { return static_cast<Mtp&>(*executable); }
};

std::unique_ptr<Made> make(const char* device, int64_t max_context = 0, const std::string& golden = "qwen3_5-odd") {
  auto made = std::make_unique<Made>();
  made->golden = load(goldens() / (golden + ".safetensors"));
  EXPECT_TRUE(write_tiny_model(made->golden, made->folder / "published"));
  const auto done = convert(made->folder / "published", made->folder / "model", {});
  EXPECT_TRUE(done) << done.error().message;
  if (done) EXPECT_THAT(done->unused, ::testing::IsEmpty());
  auto executable = load_executable(made->folder / "model",
                                    {.device = device, .threads = 1, .max_context = max_context, .mtp = true});
  EXPECT_TRUE(executable) << executable.error().message;
  made->executable = std::move(*executable);
  EXPECT_NE(dynamic_cast<Mtp*>(made->executable.get()), nullptr);
  return made;
}

class MtpState : public ::testing::TestWithParam<const char*> {
 protected:
  static void TearDownTestSuite() { made_.reset(), device_.clear(); }
  void SetUp() override {
    if (device_ != GetParam()) made_ = make(GetParam()), device_ = GetParam();
  }
  // A sequence that has computed `tokens` in one go.
  std::unique_ptr<Sequence> cold(std::span<const int32_t> tokens) {
    auto sequence = made_->mtp().new_sequence().value();
    run_to(made_->mtp(), *sequence, tokens, static_cast<int64_t>(tokens.size()));
    return sequence;
  }
  // What follows is guessed to the same bits as by a sequence that never saw anything else.
  void expect_guesses_of_cold(Sequence& sequence, std::span<const int32_t> tokens, int32_t next) {
    const auto other = cold(tokens);
    EXPECT_EQ(guesses(made_->mtp(), sequence, next, 3), guesses(made_->mtp(), *other, next, 3));
  }

  static std::unique_ptr<Made> made_;
  static std::string device_;
};
std::unique_ptr<Made> MtpState::made_;
std::string MtpState::device_;

INSTANTIATE_TEST_SUITE_P(Devices, MtpState, ::testing::Values("CPU", "reference"));

TEST_P(MtpState, follows_accepted_and_refused_tokens) {
  std::vector<int32_t> tokens(made_->golden.ids.begin(), made_->golden.ids.begin() + 10);
  const auto sequence = cold(tokens);
  for (const int accepted : {0, 2, 3, 1, 0, 3}) {
    const int32_t next = static_cast<int32_t>(tokens.size() * 7 % 101);
    Guesses wanted{.sequence = sequence.get(), .next = next, .count = 3};
    wanted.draw = [](std::span<const float> logits, int) { return likeliest(logits); };
    ASSERT_TRUE(made_->mtp().guess({&wanted, 1}, false, never()));
    ASSERT_EQ(wanted.tokens.size(), 3U);
    std::vector<int32_t> tried = {next};
    std::ranges::copy(wanted.tokens, std::back_inserter(tried));
    std::vector<Row> rows;
    for (size_t i = 0; i < tried.size(); ++i) {
      rows.push_back(text_row(0, static_cast<int64_t>(tokens.size() + i), tried[i], true));
      rows.back().wants_hidden = true;
    }
    Sequence* const one = sequence.get();
    ASSERT_TRUE(made_->mtp().run({.sequences = {&one, 1}, .rows = rows}, never()));
    one->commit(1 + accepted);
    tokens.insert(tokens.end(), tried.begin(), tried.begin() + 1 + accepted);
    const auto fork = sequence->fork(sequence->length()).value();
    expect_guesses_of_cold(*fork, tokens, 5);
  }
  expect_guesses_of_cold(*sequence, tokens, 9);
}

TEST_P(MtpState, comes_back_with_a_checkpoint) {
  const auto& ids = made_->golden.ids;
  const auto sequence = cold(std::span(ids).first(9));
  ASSERT_TRUE(made_->mtp().catch_up(*sequence, 1, never()));
  const auto kept = sequence->checkpoint().value();
  EXPECT_GT(kept->bytes(), 0);
  run_to(made_->mtp(), *sequence, ids, 20);
  guesses(made_->mtp(), *sequence, 3, 2);
  ASSERT_TRUE(sequence->restore(*kept));
  EXPECT_EQ(sequence->length(), 9);
  std::vector<int32_t> other(ids.begin(), ids.begin() + 9);
  for (const int32_t token : {50, 60, 70}) other.push_back(token);
  run_to(made_->mtp(), *sequence, other, 12);
  expect_guesses_of_cold(*sequence, other, 4);
}

// Another token than the one that a guess was for: the entry that stood on it goes.
TEST_P(MtpState, forgets_a_token_that_did_not_come) {
  std::vector<int32_t> tokens(made_->golden.ids.begin(), made_->golden.ids.begin() + 8);
  const auto sequence = cold(tokens);
  guesses(made_->mtp(), *sequence, 11, 2);
  tokens.push_back(12);
  run_to(made_->mtp(), *sequence, tokens, 9);
  EXPECT_TRUE(made_->mtp().can_guess(*sequence));
  EXPECT_EQ(guesses(made_->mtp(), *sequence, 13, 2).size(), 2U);  // without that entry: a gap
}

TEST_P(MtpState, guesses_on_after_a_branch_and_after_rows_that_it_did_not_see) {
  const auto& ids = made_->golden.ids;
  const auto sequence = cold(std::span(ids).first(16));
  ASSERT_TRUE(made_->mtp().catch_up(*sequence, 1, never()));
  const int64_t kept = sequence->truncate(14);  // as far as the states reach
  std::vector<int32_t> other(ids.begin(), ids.begin() + kept);
  other.push_back(70);
  EXPECT_FALSE(made_->mtp().can_guess(*sequence) && kept > 0 && kept < 16);
  run_to(made_->mtp(), *sequence, other, kept + 1);
  EXPECT_EQ(guesses(made_->mtp(), *sequence, 1, 2).size(), 2U);
  Row blind = text_row(0, sequence->length(), 5, true);  // asks for no hidden state
  Sequence* const one = sequence.get();
  ASSERT_TRUE(made_->mtp().run({.sequences = {&one, 1}, .rows = {&blind, 1}}, never()));
  one->commit(1);
  EXPECT_FALSE(made_->mtp().can_guess(*sequence));
  EXPECT_TRUE(guesses(made_->mtp(), *sequence, 1, 2).empty());
  other.push_back(5);
  other.push_back(6);
  run_to(made_->mtp(), *sequence, other, static_cast<int64_t>(other.size()));
  EXPECT_EQ(guesses(made_->mtp(), *sequence, 1, 2).size(), 2U);
}

TEST_P(MtpState, is_as_before_a_guess_that_was_cancelled) {
  std::vector<int32_t> tokens(made_->golden.ids.begin(), made_->golden.ids.begin() + 12);
  const auto sequence = cold(tokens);
  CancelToken cancelled;
  cancelled.cancel();
  Guesses wanted{.sequence = sequence.get(), .next = 3, .count = 3};
  wanted.draw = [](std::span<const float> logits, int) { return likeliest(logits); };
  const auto done = made_->mtp().guess({&wanted, 1}, false, cancelled);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::cancelled);
  EXPECT_TRUE(wanted.tokens.empty());
  expect_guesses_of_cold(*sequence, tokens, 3);
}

TEST_P(MtpState, guesses_for_several_at_once_are_those_for_each_alone) {
  const auto& ids = made_->golden.ids;
  const auto a = cold(std::span(ids).first(5)), b = cold(std::span(ids).first(17)), c = cold(std::span(ids).first(9));
  std::vector<std::vector<std::vector<float>>> rows(3);
  std::vector<Guesses> wanted;
  const std::pair<Sequence*, int> asked[] = {{a.get(), 3}, {b.get(), 1}, {c.get(), 2}};
  for (size_t i = 0; i < 3; ++i)
    wanted.push_back({.sequence = asked[i].first,
                      .next = 7,
                      .count = asked[i].second,
                      .draw = [&rows, i](std::span<const float> logits, int) {
                        rows[i].emplace_back(logits.begin(), logits.end());
                        return likeliest(logits);
                      }});
  ASSERT_TRUE(made_->mtp().guess(wanted, false, never()));
  const size_t lengths[] = {5, 17, 9};
  for (size_t i = 0; i < 3; ++i) {
    const auto alone = cold(std::span(ids).first(lengths[i]));
    EXPECT_EQ(rows[i], guesses(made_->mtp(), *alone, 7, asked[i].second)) << i;
  }
}

TEST(Mtp, guesses_no_further_than_the_context) {
  const auto made = make("CPU", 12);
  auto sequence = made->mtp().new_sequence().value();
  run_to(made->mtp(), *sequence, made->golden.ids, 10);
  EXPECT_EQ(guesses(made->mtp(), *sequence, 3, 8).size(), 2U);
  EXPECT_EQ(guesses(made->mtp(), *sequence, 3, 8).size(), 0U);  // the last hidden state is used up
}

TEST(Mtp, its_memory_is_counted_and_what_both_use_once) {
  const auto made = make("CPU");
  const auto plain = load_executable(made->folder / "model", {.device = "CPU", .threads = 1});
  ASSERT_TRUE(plain);
  const MemoryNeed with = made->executable->need(256, 1), without = (*plain)->need(256, 1);
  EXPECT_GT(with.state_bytes, without.state_bytes);
  EXPECT_GT(with.weights_bytes, without.weights_bytes);
  EXPECT_LT(with.weights_bytes, 2 * without.weights_bytes);
}

// ---- In the engine

// All steps take the same time by the clock that it moves, so that drafts pay on whatever machine; of the layer's
// guesses 7 in 10 are replaced by what the answer is known to go on with: random weights would hardly guess a token.
class Told final : public Mtp {
 public:
  Told(Mtp& inner, const std::vector<int32_t>& text, double& clock) : inner_(inner), text_(text), clock_(clock) {}
  const ExecutableInfo& info() const override { return inner_.info(); }
  const ExecutableInfo& layer_info() const override { return inner_.layer_info(); }
  Result<std::unique_ptr<Sequence>> new_sequence() override { return inner_.new_sequence(); }
  MemoryNeed need(int64_t tokens, int sequences) const override { return inner_.need(tokens, sequences); }
  Cost cost(const StepShape&) const override { return {1e-3}; }
  Cost layer_cost(const StepShape&, bool) const override { return {1e-6}; }
  bool mixes_prompt_and_decode() const override { return inner_.mixes_prompt_and_decode(); }
  bool can_guess(const Sequence& sequence) const override { return inner_.can_guess(sequence); }
  Result<void> catch_up(Sequence& sequence, int64_t least, const CancelToken& cancel) override {
    return inner_.catch_up(sequence, least, cancel);
  }
  Result<Outputs> run(const Step& step, const CancelToken& cancel) override {
    clock_ += 4e-3;
    return inner_.run(step, cancel);
  }
  Result<void> guess(std::span<Guesses> wanted, bool short_head, const CancelToken& cancel) override {
    RETURN_IF_ERROR(inner_.guess(wanted, short_head, cancel));
    for (Guesses& g : wanted)
      for (size_t k = 0; k < g.tokens.size(); ++k)
        if (const auto at = static_cast<size_t>(g.sequence->length()) + 1 + k; at < text_.size() && ++told_ % 10 < 7)
          g.tokens[k] = text_[at];
    return {};
  }

 private:
  Mtp& inner_;
  const std::vector<int32_t>& text_;
  double& clock_;
  int told_ = 0;
};

class MtpDrafts : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, MtpDrafts, ::testing::Values("qwen3_5-g64", "qwen3_5_moe-g64"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, std::string(info.param).find('-'));
                         });

// numerics-068
TEST_P(MtpDrafts, change_no_bit_of_an_answer) {
  const auto made = make("CPU", 0, GetParam());
  std::vector<int32_t> text;
  double clock = 0;
  const auto engine = Engine::create(std::make_unique<Told>(made->mtp(), text, clock),
                                     {.prompt_lookup = false, .seconds = [&clock] { return clock; }});
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_TRUE((*engine)->info().mtp);
  int64_t accepted = 0, refused = 0;
  for (const float temperature : {0.0F, 1.5F}) {
    const auto ask = [&](bool drafts) {
      GenerateRequest request{.prompt = made->golden.ids,
                              .sampling = {.temperature = temperature, .seed = 11},
                              .max_tokens = 40,
                              .logprobs = 0};
      request.drafts = drafts;
      return answer(**engine, std::move(request));
    };
    const Answer plain = ask(false);
    text = made->golden.ids;
    std::ranges::copy(plain.tokens, std::back_inserter(text));
    const Answer drafted = ask(true);
    EXPECT_EQ(drafted.tokens, plain.tokens) << "at " << temperature;
    EXPECT_EQ(plain.usage.drafted_tokens, 0);
    EXPECT_EQ(drafted.usage.mtp_drafted_tokens, drafted.usage.drafted_tokens);
    accepted += drafted.usage.mtp_accepted_tokens;
    refused += drafted.usage.mtp_drafted_tokens - drafted.usage.mtp_accepted_tokens;
  }
  EXPECT_GT(accepted, 5);
  EXPECT_GT(refused, 0);
}

// ---- What is missing

struct Without {
  const char* what;
  std::function<bool(const std::string& name)> missing;
  const char* why;
};

TEST(Mtp, a_layer_that_is_not_there_or_not_wholly_is_left_out_and_says_why) {
  const Without cases[] = {
      {"all", [](const std::string& name) { return name.starts_with("mtp."); }, "no tensor of it"},
      {"one", [](const std::string& name) { return name == "mtp.fc.weight"; }, "'mtp.fc.weight'"},
      {"a part", [](const std::string& name) { return name.starts_with("mtp.layers.0.mlp"); }, "3 of its"},
  };
  for (const Without& c : cases) {
    Golden golden = load(goldens() / "qwen3_5-odd.safetensors");
    std::erase_if(golden.tensors, [&](const TinyTensor& t) { return c.missing(t.name); });
    const TempFolder folder;
    ASSERT_TRUE(write_tiny_model(golden, folder / "published"));
    const auto done = convert(folder / "published", folder / "model", {});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_THAT(done->mtp_left_out, ::testing::HasSubstr(c.why)) << c.what;
    std::string why;
    const auto executable = load_executable(
        folder / "model",
        {.device = "CPU", .threads = 1, .mtp = true, .on_no_mtp = [&](const std::string& text) { why = text; }});
    ASSERT_TRUE(executable) << executable.error().message;
    EXPECT_EQ(dynamic_cast<Mtp*>(executable->get()), nullptr);
    EXPECT_THAT(why, ::testing::HasSubstr("mtp.")) << c.what;
  }
}

}  // namespace
}  // namespace onw::testing
