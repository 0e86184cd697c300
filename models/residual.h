// The residual stream of a Program: what adds up from the embedding to the last norm. Dividing it by a power of two
// keeps it within FP16 (65504) on devices that compute so, and changes no logit.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "graph/program.h"

namespace onw {

// config.json of a model folder names the shift here; absent: 0.
inline constexpr const char* kResidualShiftKey = "onw_residual_shift";
inline constexpr int kMaxResidualShift = 12;

// The weights whose outputs are added to the stream: o and down with their biases, or the norms behind them. They are
// what the converter divides by 2^shift; the embedding is not among them, because its scale takes the division.
// Errors: unsupported, naming a step that neither adds to the stream, scales it as a whole, normalises nor multiplies
// it.
Result<std::vector<std::string>> residual_writers(const Program& program);

// The Program for weights whose writers were divided by 2^shift: the embedding's scale too, and the eps of every norm
// that reads the stream by its square; products that read it without a norm before are multiplied back. Powers of two,
// so every other value keeps its bits. Errors: unsupported, as above.
Result<void> shift_residual(Program& program, int shift);

}  // namespace onw
