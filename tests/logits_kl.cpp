#include "tests/logits_kl.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace onw::testing {

double mean_kl(std::span<const float> p, std::span<const float> q, int64_t vocabulary) {
  const auto n = static_cast<size_t>(vocabulary);
  double sum = 0;
  for (size_t row = 0; row < p.size(); row += n) {
    const auto log_sum = [&](std::span<const float> x) {
      double most = x[0], total = 0;
      for (const float v : x) most = std::max<double>(most, v);
      for (const float v : x) total += std::exp(v - most);
      return most + std::log(total);
    };
    const auto a = p.subspan(row, n), b = q.subspan(row, n);
    const double la = log_sum(a), lb = log_sum(b);
    for (size_t i = 0; i < n; ++i) sum += std::exp(a[i] - la) * ((a[i] - la) - (b[i] - lb));
  }
  return sum / static_cast<double>(p.size() / n);
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double most = 0, off = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max<double>(most, std::fabs(a[i]));
    off = std::max<double>(off, std::fabs(a[i] - b[i]));
  }
  return off / most;
}

}  // namespace onw::testing
