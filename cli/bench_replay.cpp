#include "cli/bench_replay.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "runtime/engine.h"
#include "runtime/mtp.h"

namespace onw::cli {
namespace {

constexpr int kRounds = 3;

// Somebody else's executable, for an engine that would own one.
class Borrowed final : public Executable {
 public:
  explicit Borrowed(Executable& owner) : owner_(owner) {}
  const ExecutableInfo& info() const override { return owner_.info(); }
  Result<std::unique_ptr<Sequence>> new_sequence() override { return owner_.new_sequence(); }
  MemoryNeed need(int64_t tokens, int sequences) const override { return owner_.need(tokens, sequences); }
  Cost cost(const StepShape& shape) const override { return owner_.cost(shape); }
  bool mixes_prompt_and_decode() const override { return owner_.mixes_prompt_and_decode(); }
  Result<Outputs> run(const Step& step, const CancelToken& cancel) override { return owner_.run(step, cancel); }

 private:
  Executable& owner_;
};

// The same of a model with a layer that guesses; its guesses replaced where asked for.
class BorrowedMtp final : public Mtp {
 public:
  BorrowedMtp(Mtp& owner, std::span<const int32_t> recording, std::vector<int64_t> accept)
      : owner_(owner), recording_(recording), accept_(std::move(accept)) {}
  const ExecutableInfo& info() const override { return owner_.info(); }
  Result<std::unique_ptr<Sequence>> new_sequence() override { return owner_.new_sequence(); }
  MemoryNeed need(int64_t tokens, int sequences) const override { return owner_.need(tokens, sequences); }
  Cost cost(const StepShape& shape) const override { return owner_.cost(shape); }
  bool mixes_prompt_and_decode() const override { return owner_.mixes_prompt_and_decode(); }
  Result<Outputs> run(const Step& step, const CancelToken& cancel) override { return owner_.run(step, cancel); }
  const ExecutableInfo& layer_info() const override { return owner_.layer_info(); }
  Cost layer_cost(const StepShape& shape, bool few) const override { return owner_.layer_cost(shape, few); }
  bool can_guess(const Sequence& sequence) const override { return owner_.can_guess(sequence); }
  Result<void> catch_up(Sequence& sequence, int64_t least, const CancelToken& cancel) override {
    return owner_.catch_up(sequence, least, cancel);
  }

  Result<void> guess(std::span<Guesses> wanted, bool few, const CancelToken& cancel) override {
    RETURN_IF_ERROR(owner_.guess(wanted, few, cancel));
    if (accept_.empty()) return {};
    for (Guesses& g : wanted)
      for (size_t k = 0; k < g.tokens.size(); ++k) {
        const auto at = static_cast<size_t>(g.sequence->length()) + 1 + k;  // behind `next`
        const int32_t recorded = at < recording_.size() ? recording_[at] : 0;
        const auto percent = static_cast<uint64_t>(accept_[std::min(k, accept_.size() - 1)]);
        const bool right = random_() % 100 < percent;
        g.tokens[k] = right ? recorded : recorded == 0 ? 1 : recorded - 1;
      }
    return {};
  }

 private:
  Mtp& owner_;
  std::span<const int32_t> recording_;
  std::vector<int64_t> accept_;
  std::mt19937_64 random_{20261};
};

// Allows the recorded token and no other.
class Recorded final : public LogitMask {
 public:
  explicit Recorded(std::span<const int32_t> tokens) : tokens_(tokens) {}
  Result<void> allow(std::span<uint32_t> bits) override {
    const auto id = static_cast<size_t>(tokens_.front());
    bits[id / 32] |= 1U << (id % 32);
    return {};
  }
  Result<void> accept(int32_t) override {
    tokens_ = tokens_.subspan(1);
    return {};
  }
  Result<std::unique_ptr<LogitMask>> fork() const override { return std::make_unique<Recorded>(tokens_); }

 private:
  std::span<const int32_t> tokens_;
};

Result<void> check_recording(std::span<const int32_t> recording, const ReplayCase& what, int64_t vocabulary) {
  const int64_t needed = what.depth + what.rows + 1;
  if (static_cast<int64_t>(recording.size()) < needed)
    return error(
        Code::invalid_argument,
        "the recording has {} tokens: a depth of {} and {} tokens to decode need {}. Ask for fewer with --depth "
        "and --decode",
        recording.size(), what.depth, what.rows, needed);
  const auto outside = std::ranges::find_if(recording, [&](int32_t id) { return id < 0 || id >= vocabulary; });
  if (outside == recording.end()) return {};
  return error(Code::invalid_argument, "token {} of the recording is {}, but the model's vocabulary has {}",
               outside - recording.begin(), *outside, vocabulary);
}

struct Round {
  double seconds = 0;
  Usage usage;  // of the last to finish
};

Result<Round> run_round(Engine& engine, std::span<const int32_t> recording, const ReplayCase& what, bool drafts) {
  const auto depth = static_cast<size_t>(what.depth);
  std::vector<std::unique_ptr<Generation>> all;
  for (int i = 0; i < what.batch; ++i) {
    GenerateRequest request{.prompt = {recording.begin(), recording.begin() + what.depth},
                            .sampling = {.temperature = 0},
                            .max_tokens = what.rows + 1,
                            .mask = std::make_unique<Recorded>(recording.subspan(depth)),
                            .drafts = drafts};
    auto generation = engine.submit(std::move(request));
    RETURN_IF_ERROR(generation);
    all.push_back(std::move(*generation));
  }
  Round round;
  for (const auto& generation : all)
    while (const auto event = generation->next()) {
      if (event->error) return Failure(*event->error);
      if (event->finish == FinishReason::none || event->usage.decode_seconds < round.seconds) continue;
      round.seconds = event->usage.decode_seconds;
      round.usage = event->usage;
    }
  return round;
}

const Round& median(std::vector<Round>& rounds) {
  std::ranges::sort(rounds, {}, &Round::seconds);
  return rounds[rounds.size() / 2];
}

}  // namespace

Result<ReplayTiming> time_replay(Executable& executable, std::span<const int32_t> recording, const ReplayCase& what,
                                 const ReplayDrafts& by) {
  RETURN_IF_ERROR(check_recording(recording, what, executable.info().vocabulary));
  auto* mtp = by.mtp ? dynamic_cast<Mtp*>(&executable) : nullptr;
  if (!by.accept.empty() && mtp == nullptr)
    return error(Code::invalid_argument,
                 "--accept replaces the guesses of a layer that this model does not have, or that is off");
  std::unique_ptr<Executable> borrowed;
  if (mtp != nullptr)
    borrowed = std::make_unique<BorrowedMtp>(*mtp, recording, by.accept);
  else
    borrowed = std::make_unique<Borrowed>(executable);
  const auto engine = Engine::create(std::move(borrowed), {.context_tokens = what.depth + what.rows + 1,
                                                           .max_sessions = what.batch,
                                                           .prompt_lookup = by.lookup,
                                                           .mtp = mtp != nullptr});
  RETURN_IF_ERROR(engine);
  std::vector<Round> plain, drafted;
  for (int round = 0; round < kRounds; ++round)
    for (const bool drafts : {false, true}) {
      auto timed = run_round(**engine, recording, what, drafts);
      RETURN_IF_ERROR(timed);
      (drafts ? drafted : plain).push_back(*timed);
    }
  const Round& middle = median(drafted);
  const EngineStats stats = (*engine)->stats();
  return ReplayTiming{.plain_seconds = median(plain).seconds,
                      .seconds = middle.seconds,
                      .steps = what.rows - middle.usage.accepted_tokens,
                      .drafted = middle.usage.drafted_tokens,
                      .accepted = middle.usage.accepted_tokens,
                      .mtp_drafted = middle.usage.mtp_drafted_tokens,
                      .mtp_accepted = middle.usage.mtp_accepted_tokens,
                      .mtp_judged = stats.mtp_judged,
                      .mtp_right = stats.mtp_right};
}

}  // namespace onw::cli
