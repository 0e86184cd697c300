// What a target does for itself while no answer is under way: graphs are loaded, which takes seconds, and which must
// not happen beside a step. Targets that do nothing of the kind need not know of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include "targets/executable.h"

namespace onw {

struct Upkeep {
  bool busy = false;          // now: a step would have to wait until it is done
  bool more_to_come = false;  // something is being prepared, or is to be done in the next rest
  bool wants_rest = false;    // of that: a rest would be made use of at once
  int64_t improvements = 0;   // done since the target was made, each of which may have made it faster
};

// An Executable that has something to do in a rest is this, too.
class Rests {
 public:
  virtual ~Rests() = default;
  // Whether no answer is under way, as the engine's thread says; at first one is. What begins in a rest goes on on a
  // thread of the target's own; run() ends the rest, and waits for what has begun.
  virtual void rest(bool resting) = 0;
  virtual Upkeep upkeep() const = 0;
};

inline void rest(Executable& target, bool resting) {
  if (auto* const rests = dynamic_cast<Rests*>(&target)) rests->rest(resting);
}

inline Upkeep upkeep(const Executable& target) {
  const auto* const rests = dynamic_cast<const Rests*>(&target);
  return rests != nullptr ? rests->upkeep() : Upkeep();
}

// For who runs a target without an engine: a rest until nothing more is to come (graphs that are compiled take minutes
// on NPUs).
inline void rest_until_done(Executable& target) {
  rest(target, true);
  while (upkeep(target).more_to_come) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace onw
