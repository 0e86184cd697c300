#include "convert/equalise_keys.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace onw {
namespace {

constexpr double kWorthIt = 0.5;  // of the cost without

double sum_of_squares(std::span<const double> x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return sum;
}

double rounding_cost(const PairSizes& sizes) {
  const double largest_key = std::ranges::max(sizes.keys), keys2 = sum_of_squares(sizes.keys);
  double cost = 0;
  for (const auto& q : sizes.queries) {
    const double largest = std::ranges::max(q);
    cost += largest * largest * keys2 + largest_key * largest_key * sum_of_squares(q);
  }
  return cost;
}

PairSizes scaled(PairSizes sizes, std::span<const int8_t> exponents) {
  for (size_t p = 0; p < exponents.size(); ++p) {
    sizes.keys[p] = std::ldexp(sizes.keys[p], exponents[p]);
    for (auto& q : sizes.queries) q[p] = std::ldexp(q[p], -exponents[p]);
  }
  return sizes;
}

// keys x (queries^by_queries / keys^by_keys), in powers of two around the median. A pair that is zero stays as it is.
std::vector<int8_t> exponents_for(const PairSizes& sizes, double by_keys, double by_queries) {
  std::vector<double> logs(sizes.keys.size(), NAN), sorted;
  for (size_t p = 0; p < logs.size(); ++p) {
    double q2 = 0;
    for (const auto& q : sizes.queries) q2 += q[p] * q[p];
    if (sizes.keys[p] <= 0 || q2 <= 0) continue;
    logs[p] = by_queries * 0.5 * std::log2(q2 / static_cast<double>(sizes.queries.size())) -
              by_keys * std::log2(sizes.keys[p]);
    sorted.push_back(logs[p]);
  }
  std::vector<int8_t> exponents(logs.size(), 0);
  if (sorted.empty()) return exponents;
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  for (size_t p = 0; p < logs.size(); ++p)
    if (!std::isnan(logs[p]))
      exponents[p] =
          static_cast<int8_t>(std::clamp<double>(std::nearbyint(logs[p] - *middle), -kMaxKeyExponent, kMaxKeyExponent));
  return exponents;
}

}  // namespace

std::vector<int8_t> key_exponents(const PairSizes& sizes) {
  struct Candidate {
    double by_keys, by_queries;
  };
  constexpr Candidate kCandidates[] = {{1, 0}, {0.5, 0}, {0.5, 0.5}};
  std::vector<int8_t> best;
  double least = kWorthIt * rounding_cost(sizes);
  for (const Candidate& c : kCandidates) {
    std::vector<int8_t> exponents = exponents_for(sizes, c.by_keys, c.by_queries);
    const double cost = rounding_cost(scaled(sizes, exponents));
    if (!(cost < least)) continue;
    least = cost;
    best = std::move(exponents);
  }
  return best;
}

}  // namespace onw
