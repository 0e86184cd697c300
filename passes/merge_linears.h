// q, k and v, or gate and up, as one product: the converter writes them side by side, so the merged weight is a view,
// not a copy.
#pragma once

#include <functional>

#include "graph/program.h"

namespace onw {

// Whether these weights lie one after the other in every part that their format has (codes, scales, minima).
using Adjacent = std::function<bool(const std::vector<std::string>& weights)>;

// Linears that read the same value through weights of one declared group and format become one linear and slices of it.
// Each but the last must have a multiple of 16 outputs (a tile). A merged weight is named as its group and lists its
// parts; biases become
// "<group>.bias" with parts, if all have one.
Program merge_linears(const Program& program, const Adjacent& adjacent);

}  // namespace onw
