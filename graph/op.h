// The words that models and targets share, without their list: what only passes an Op on is not built again when one
// is added (graph/ops.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace onw {

enum class Op : uint8_t;

enum class Level : uint8_t { coarse, primitive, both };

struct OpInfo {
  Op op;
  std::string_view name;
  Level level;
  int least_inputs;
  int most_inputs;
  bool effect;  // reads or writes a state: keeps its place among the ops of that state
};

const OpInfo& info(Op op);
std::string_view name(Op op);
std::optional<Op> op(std::string_view name);

}  // namespace onw
