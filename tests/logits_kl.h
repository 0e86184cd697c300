// How far two targets' logits lie apart.
#pragma once

#include <cstdint>
#include <span>

namespace onw::testing {

// Mean KL of q against p over rows of `vocabulary` logits; no number where a logit is none.
double mean_kl(std::span<const float> p, std::span<const float> q, int64_t vocabulary);

// The largest difference over the largest value of `a`.
double largest_difference(std::span<const float> a, std::span<const float> b);

}  // namespace onw::testing
