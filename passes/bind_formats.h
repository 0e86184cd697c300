// The formats of the weights as they are stored, written into the Program: what the other passes decide by.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "graph/program.h"

namespace onw {

// The stored format of a weight, empty where the folder does not have it.
using FormatOf = std::function<std::optional<WeightFormat>(std::string_view weight)>;

// Errors: missing_tensor naming the weight; bad_format where gate and up of experts have two formats.
Result<void> bind_formats(Program& program, const FormatOf& format_of);

}  // namespace onw
