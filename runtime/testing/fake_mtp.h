// The fake with a layer that predicts further tokens: it knows what the forgetful fake says after a token, and is wrong
// as often as it is told to be.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/mtp.h"
#include "runtime/testing/engine_driver.h"
#include "runtime/testing/random.h"

namespace onw::testing {

struct FakeMtpOptions {
  double wrong = 0.25;                // guesses that are drawn from noise
  int64_t short_vocabulary = 0;       // of a second head
  std::chrono::microseconds step{0};  // that each token of a guess takes by the fake's clock, with the whole head
  bool fails = false;                 // every guess is an error
};

class FakeMtp final : public Mtp {
 public:
  FakeMtp(std::unique_ptr<FakeExecutable> model, const FakeMtpOptions& options)
      : model_(std::move(model)), options_(options), layer_info_(model_->info()) {
    layer_info_.short_vocabulary = options.short_vocabulary;
  }
  const ExecutableInfo& info() const override { return model_->info(); }
  const ExecutableInfo& layer_info() const override { return layer_info_; }
  Result<std::unique_ptr<Sequence>> new_sequence() override { return model_->new_sequence(); }
  MemoryNeed need(int64_t tokens, int sequences) const override { return model_->need(tokens, sequences); }
  Cost cost(const StepShape& shape) const override { return model_->cost(shape); }
  bool mixes_prompt_and_decode() const override { return model_->mixes_prompt_and_decode(); }
  Result<Outputs> run(const Step& step, const CancelToken& cancel) override { return model_->run(step, cancel); }
  Cost layer_cost(const StepShape&, bool) const override { return {1e-7}; }
  bool can_guess(const Sequence& sequence) const override { return sequence.length() > 0; }
  Result<void> catch_up(Sequence&, int64_t, const CancelToken&) override { return {}; }

  Result<void> guess(std::span<Guesses> wanted, bool short_head, const CancelToken&) override {
    if (options_.fails) return error(Code::numerics, "the layer fails");
    const int64_t most = short_head ? options_.short_vocabulary : info().vocabulary;
    std::vector<float> logits(static_cast<size_t>(info().vocabulary));
    const auto& follows = model_->shared()->options.follows;
    for (Guesses& g : wanted) {
      g.tokens.clear();
      for (int k = 0; k < g.count; ++k) {
        const int32_t after = k == 0 ? g.next : g.tokens.back();
        fake_logits(
            random_.chance(options_.wrong) ? static_cast<uint64_t>(random_.below(1 << 30)) : fake_hash(0, after, 0),
            logits);
        if (const auto sure = follows.find(after); sure != follows.end())
          logits[static_cast<size_t>(sure->second)] = 100;
        g.tokens.push_back(g.draw(std::span(logits).first(static_cast<size_t>(most)), k));
        model_->shared()->takes(options_.step / (short_head ? 4 : 1));
      }
    }
    guessed_short += short_head ? 1 : 0;
    return {};
  }

  int64_t guessed_short = 0;

 private:
  std::unique_ptr<FakeExecutable> model_;
  FakeMtpOptions options_;
  ExecutableInfo layer_info_;
  Random random_{77};
};

inline FakeEngine fake_mtp_engine(const FakeOptions& fake = {}, EngineOptions options = {},
                                  const FakeMtpOptions& layer = {}) {
  auto executable = std::make_unique<FakeExecutable>(fake);
  auto shared = executable->shared();
  use_clock_of(shared, options);
  if (options.memory_bytes == 0) options.memory_bytes = int64_t{1} << 40;
  auto engine = Engine::create(std::make_unique<FakeMtp>(std::move(executable), layer), options);
  EXPECT_TRUE(engine) << engine.error().message;
  return {std::move(*engine), std::move(shared)};
}

}  // namespace onw::testing
