// Guesses of what a conversation goes on with, which the model then checks many at a time. A guess costs time where it
// is wrong, and never changes the answer: the engine keeps a drafted token only where it is the one that it draws.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/conversation.h"

namespace onw {

struct Draft {
  std::vector<int32_t> tokens;
  int later = 0;      // in their place: how many could be made once it is known how many are wanted, at a cost
  int grade = 0;      // below Drafter::grades(): how sure, in the drafter's own terms. Each grade is judged for itself
  double chance = 0;  // that a token of this grade is right, before anything is known of this conversation
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;
  virtual int grades() const = 0;

  // At most `most` tokens (at least 1) to follow `conversation`, which begins with that of the last call; empty where
  // nothing comes to mind. Tokens may be any number: whoever takes them looks.
  virtual Draft propose(std::span<const TokenKey> conversation, int most) = 0;
};

// The layer that predicts one token further (runtime/mtp.h). It costs time, so whoever owns it runs it, for all
// sessions of a step together and as far as is worth it; `chance` tells how often it was right lately, 0 where it
// cannot guess.
class MtpDrafter final : public Drafter {
 public:
  static constexpr int kMostTokens = 8;
  explicit MtpDrafter(std::function<double()> chance) : chance_(std::move(chance)) {}

  std::string_view name() const override { return "mtp"; }
  int grades() const override { return 1; }
  Draft propose(std::span<const TokenKey>, int most) override {
    const double chance = chance_();
    return {.later = chance > 0 ? std::min(most, kMostTokens) : 0, .chance = chance};
  }

 private:
  std::function<double()> chance_;
};

}  // namespace onw
