// Keys and queries of a RoPE pair brought to like sizes: keys times a power of two, queries divided by it. No product
// q.k changes by a bit, but one INT8 scale per head then serves every pair; with the key biases of Qwen2 a few pairs
// are so large that the others would be left with a handful of codes.
#pragma once

#include <cstdint>
#include <vector>

namespace onw {

inline constexpr int kMaxKeyExponent = 8;

// How large the pairs of one key head, and of the query heads that read it, are expected to be: root of the mean square
// of both elements, which RoPE turns into each other.
struct PairSizes {
  std::vector<double> keys;                  // [pairs]
  std::vector<std::vector<double>> queries;  // [query heads][pairs]
};

// For each pair the exponent e: keys x 2^e, queries x 2^-e; empty where it would not pay.
//
// What it costs to round q and k to one scale per row each, up to a constant:
//   sum over query heads of max(q)^2 sum(k^2) + max(k)^2 sum(q^2)
// Keys are made equal wholly, by half, or as sqrt(q / k) (then both have one profile): whichever costs least, if that
// is less than half of the cost without. The median exponent is 0, so most keys keep their size; none is beyond
// kMaxKeyExponent.
std::vector<int8_t> key_exponents(const PairSizes& sizes);

}  // namespace onw
