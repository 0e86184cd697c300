// Guesses of what a conversation goes on with, which the model then checks many at a time. A guess costs time where it
// is wrong, and never changes the answer: the engine keeps a drafted token only where it is the one that it draws.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/conversation.h"

namespace onw {

struct Draft {
  std::vector<int32_t> tokens;
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

}  // namespace onw
