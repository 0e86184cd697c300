// One session's drafts: which drafter speaks, whether it has been right so far, and what drafting has cost. Time is
// counted in tokens: what the session would have drawn without drafts meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/draft_plan.h"
#include "runtime/drafter.h"

namespace onw {

class Speculator {
 public:
  static constexpr int kMostTokens = 15;  // of a draft: a step of 16 rows, which every target can keep in part
  // Of the tokens drawn so far, what wrong drafts may have cost. So at no time is an answer slower than at 0.975 of its
  // speed without drafts, by the costs of steps that the engine knows.
  static constexpr double kMostLoss = 0.025;

  // How fast answers come with an offer taken as far as it pays, against each other.
  using Worth = std::function<double(const DraftOffer&)>;

  // The ladder: drafters are asked in order until one is sure; the one worth most is taken, the surest where nobody
  // says what they are worth. At least one.
  explicit Speculator(std::vector<std::unique_ptr<Drafter>> ladder);

  // What could be drafted after `conversation`, of at most `most` tokens, all below `vocabulary`: tokens() until the
  // next offer.
  DraftOffer offer(std::span<const TokenKey> conversation, int most, int64_t vocabulary, const Worth& worth = {});
  std::span<const int32_t> tokens() const { return draft_.tokens; }
  // The offer's drafter makes its tokens later: who made them says which.
  bool later() const { return draft_.later > 0; }

  // After each step of the session: so many of the offered tokens were run, and that is what came of it. `charge`: what
  // the drafted rows cost, in tokens.
  void settle(int drafted, int accepted, double charge);

  // After a step that failed with so many of them, and is run again without.
  void settle_failed(int drafted) { judge(drafted, 0, 1); }

  // Tokens gained by drafting so far, less those lost; gains count up to a limit, so that they cannot pay for long
  // losses.
  double account() const { return account_; }

 private:
  struct Record {  // of one grade of one drafter; the past fades
    double right = 0, tried = 0;
    double chance() const;
  };
  void judge(int drafted, int accepted, double charge);
  Record& record() { return records_[voice_][static_cast<size_t>(draft_.grade)]; }

  std::vector<std::unique_ptr<Drafter>> ladder_;
  std::vector<std::vector<Record>> records_;  // by drafter and grade
  size_t voice_ = 0;                          // whose draft_ is
  Draft draft_;
  bool trial_ = false;  // draft_ is offered in spite of its record
  double account_ = 0;
  int64_t drawn_ = 0;
  int idle_steps_ = 0;  // with an offer that was not taken
  int patience_ = 0;    // such steps before the next trial
};

}  // namespace onw
