// How much each input of a weight counts when its 4-bit scales are chosen: measured on a text, kept in a file.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/program.h"

namespace onw {

// Mean squares of the activations that a weight multiplies, by the weight's name: F32 tensors [inputs] of a safetensors
// file (tools/importance.py writes one).
class Importance {
 public:
  Importance() = default;
  // Errors: those of reading; bad_format, naming the tensor: not F32 or not one dimension, a value that is negative or
  // not finite.
  static Result<Importance> open(const std::filesystem::path& file);

  // Empty for weights that the file does not have. Errors: invalid_argument where it has another number of inputs.
  Result<std::span<const float>> of(const WeightDecl& weight) const;
  // Errors: invalid_argument where the file has none of these weights: it is of another model.
  Result<void> check_knows(const Program& program) const;

 private:
  std::string file_;
  std::map<std::string, std::vector<float>, std::less<>> by_weight_;
};

}  // namespace onw
