// Where the values lie that segments and host steps hand to each other: one arena, in which values that are never alive
// together share bytes. Requests are bound to these places once, so nothing is copied between segments.
#pragma once

#include <map>
#include <string>

#include "passes/cut.h"
#include "targets/cpu/plan.h"

namespace onw::openvino {

struct BufferPlan {
  std::map<std::string, cpu::Slot, std::less<>> slots;  // by name: [rows, width] f32
  int64_t bytes = 0;
};

// For at most `max_rows` rows. The function's inputs are alive from the start, its outputs to the end.
// Errors: unsupported for a value that crosses and is not f32 rows.
Result<BufferPlan> plan_buffers(const CutFunction& cut, int64_t max_rows);

}  // namespace onw::openvino
