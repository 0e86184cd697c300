// Where every value of a function lives during a step: one arena, offsets by liveness, views without memory of their
// own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graph/program.h"

namespace onw {

struct Place {
  Value owner;  // the value whose memory this is: itself, or what it is a view of
  int64_t offset =
      -1;  // of the owner in the arena, bytes; -1: no memory (weights, effects, inputs that the caller holds)
  int64_t bytes = 0;                    // of the owner
  int64_t column = 0;                   // of a view: its first element in a row of the owner
  int32_t first_use = 0, last_use = 0;  // of the owner: node indices
};

struct MemoryPlan {
  std::vector<Place> places;  // by node
  int64_t arena_bytes = 0;
  int64_t sum_bytes = 0;  // what it would be without sharing
};

struct MemoryRules {
  std::function<int64_t(const Type&)> bytes;  // of a value at the largest step
  std::function<bool(const Node&)>
      in_place;  // the op may write over its first input where nothing else reads that later
  std::function<bool(const Node&)> external;  // inputs that the caller holds: no place in the arena
  int64_t alignment = 64;
};

// slice along the last axis and reshape of the row's elements are views. Offsets are multiples of the alignment; two
// values that are alive at once never overlap; outputs live to the end.
MemoryPlan plan_memory(const Function& function, const MemoryRules& rules);

// The map as text: one line a value, in order of offset.
std::string print(const Function& function, const MemoryPlan& plan);

}  // namespace onw
