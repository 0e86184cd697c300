#include "quant/scale_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/half.h"

namespace onw {
namespace {

// Divisors of the largest |w|. The small whole ones find groups that are exact at few codes; the rest clip more and
// more.
constexpr std::array kDivisors = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f,  5.5f,  6.0f,  6.5f,  7.0f,  7.5f,
                                  8.0f, 8.5f, 9.0f, 9.5f, 10.0f, 11.0f, 12.0f, 13.0f, 14.0f, 16.0f};
constexpr float kBetter = 1.00001f;  // beyond rounding: of scales with the same values, the one with the smaller codes
constexpr int kRefinements = 2;
constexpr size_t kLanes = 8;  // partial sums, so that the compiler may use vectors; groups are multiples of 32

using Lanes = std::array<float, kLanes>;

float total(const Lanes& sums) { return std::accumulate(sums.begin(), sums.end(), 0.0f); }

float largest(std::span<const float> w) {
  float amax = 0;
  for (const float x : w) amax = std::max(amax, std::fabs(x));
  return amax;
}

float rms(std::span<const float> w) {
  Lanes sums{};
  for (size_t i = 0; i < w.size(); i += kLanes)
    for (size_t l = 0; l < kLanes; ++l) sums[l] += w[i + l] * w[i + l];
  return std::sqrt(total(sums) / static_cast<float>(w.size()));
}

float weight_of(float w, float rms_of_group, float importance) { return (std::fabs(w) + rms_of_group) * importance; }

// A group and, by weight, what its error counts. Held in one buffer, made once for all the scales that are tried.
class Group {
 public:
  Group(std::span<const float> w, std::span<const float> importance) : w_(w), counts_(thread_buffer()) {
    const float r = rms(w);
    counts_.resize(w.size());
    for (size_t i = 0; i < w.size(); ++i) counts_[i] = weight_of(w[i], r, importance.empty() ? 1.0f : importance[i]);
  }

  // With the codes of `scale`: sums of counts * w * code and counts * code^2, whose quotient is the least-squares scale
  // and whose wq^2 / qq is what of the counted norm that scale explains.
  struct Fit {
    float wq = 0, qq = 0;
    float explained() const { return qq > 0 ? wq / qq * wq : 0; }
  };
  Fit fit(float scale, CodeRange range) const {
    const float inverse = 1 / scale;
    Lanes wq{}, qq{};
    for (size_t i = 0; i < w_.size(); i += kLanes)
      for (size_t l = 0; l < kLanes; ++l) {
        const float q = nearest_code(w_[i + l] * inverse, range);
        const float counted = counts_[i + l] * q;
        wq[l] += counted * w_[i + l];
        qq[l] += counted * q;
      }
    return {total(wq), total(qq)};
  }

  float error(float scale, CodeRange range) const {
    Lanes sums{};
    for (size_t i = 0; i < w_.size(); i += kLanes)
      for (size_t l = 0; l < kLanes; ++l) {
        const float off = w_[i + l] - (scale == 0 ? 0.0f : scale * nearest_code(w_[i + l] / scale, range));
        sums[l] += counts_[i + l] * off * off;
      }
    return total(sums);
  }

 private:
  static std::vector<float>& thread_buffer() {
    thread_local std::vector<float> buffer;
    return buffer;
  }

  std::span<const float> w_;
  std::vector<float>& counts_;
};

bool usable(float scale) { return scale > 0 && std::isfinite(scale); }

}  // namespace

float weighted_error(std::span<const float> w, std::span<const float> importance, float scale, CodeRange range) {
  return Group(w, importance).error(scale, range);
}

uint16_t search_scale(std::span<const float> w, std::span<const float> importance, uint16_t start, CodeRange range) {
  const float amax = largest(w);
  if (!std::isfinite(half_to_float(start)) || amax == 0) return start;  // the caller refuses the first
  const Group group(w, importance);
  uint16_t best = start;
  float least = group.error(half_to_float(start), range);
  if (least == 0) return start;

  Group::Fit fit;
  for (const float divisor : kDivisors) {
    const float scale = amax / divisor;
    if (!usable(1 / scale)) continue;
    const Group::Fit tried = group.fit(scale, range);
    if (tried.explained() > kBetter * fit.explained()) fit = tried;
  }
  for (int pass = 0; pass < kRefinements && fit.qq > 0; ++pass) {
    const uint16_t half = float_to_half(fit.wq / fit.qq);
    const float scale = half_to_float(half);
    if (!usable(scale)) break;
    const float error = group.error(scale, range);
    if (error < least) {
      least = error;
      best = half;
    }
    fit = group.fit(scale, range);
  }
  return best;
}

}  // namespace onw
