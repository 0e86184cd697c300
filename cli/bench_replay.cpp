#include "cli/bench_replay.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/engine.h"

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

Result<ReplayTiming> time_replay(Executable& executable, std::span<const int32_t> recording, const ReplayCase& what) {
  RETURN_IF_ERROR(check_recording(recording, what, executable.info().vocabulary));
  const auto engine = Engine::create(std::make_unique<Borrowed>(executable),
                                     {.context_tokens = what.depth + what.rows + 1, .max_sessions = what.batch});
  RETURN_IF_ERROR(engine);
  std::vector<Round> plain, drafted;
  for (int round = 0; round < kRounds; ++round)
    for (const bool drafts : {false, true}) {
      auto timed = run_round(**engine, recording, what, drafts);
      RETURN_IF_ERROR(timed);
      (drafts ? drafted : plain).push_back(*timed);
    }
  const Round& middle = median(drafted);
  return ReplayTiming{.plain_seconds = median(plain).seconds,
                      .seconds = middle.seconds,
                      .steps = what.rows - middle.usage.accepted_tokens,
                      .drafted = middle.usage.drafted_tokens,
                      .accepted = middle.usage.accepted_tokens};
}

}  // namespace onw::cli
