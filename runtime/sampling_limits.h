// Which values of SamplingParams make sense: one rule for the sampler, the flags of `onw chat`, the fields of a
// request, and the documents of both.
#pragma once

#include <limits>
#include <string>

namespace onw {

struct Range {
  double min = 0;
  double max = 0;

  bool contains(double x) const { return x >= min && x <= max; }  // false for NaN
  bool contains(float x) const { return x >= static_cast<float>(min) && x <= static_cast<float>(max); }
};

inline constexpr double kAboveZero = std::numeric_limits<float>::min();
inline constexpr Range kTemperatureRange{0, 2};
inline constexpr Range kTopPRange{kAboveZero, 1};
inline constexpr Range kTopKRange{0, std::numeric_limits<int>::max()};
inline constexpr Range kMinPRange{0, 1};
inline constexpr Range kRepetitionPenaltyRange{0.01, 100};
inline constexpr Range kPresencePenaltyRange{-2, 2};  // and of the frequency penalty
inline constexpr Range kLogitBiasRange{-100, 100};

// "from 0 to 2", "above 0, at most 1".
std::string range_text(const Range& range);

}  // namespace onw
