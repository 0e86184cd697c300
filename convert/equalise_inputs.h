// Channels of activations that differ much in size share a scale when they are quantised, and the small ones lose.
// Where a norm is read by products alone, its gains take a power of two from each channel and the columns of the
// products give it back: no logit of exact arithmetic changes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/program.h"

namespace onw {

// The weight of a norm, and those of all products that read what it gives.
struct NormReaders {
  std::string norm;
  std::vector<std::string> readers;
};

// Of the body; norms that something else reads too are left out.
std::vector<NormReaders> norm_readers(const Program& program);

// Exponents e: channel k is divided by 2^e[k], the root of its size relative to the median one, within 2^-8 and 2^8.
// Half way, because what is taken from the activations is given to the weights, which are quantised as well. None where
// no channel would change, or half of them are silent.
std::vector<int8_t> input_exponents(std::span<const float> mean_squares);

}  // namespace onw
