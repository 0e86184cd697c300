// Sine, cosine, exponential and logarithm in double, our own: libm's differ by version, and RoPE tables must be equal
// on every machine. Only + - * / and fma, so the bits are fixed.
#pragma once

#include <span>

namespace onw {

struct SinCos {
  double sin;
  double cos;
};

// Absolute error below 1e-15 for |angle| <= 2^24 rad. NaN for NaN and from 2^30 rad on.
SinCos sin_cos(double angle);

// base^exponent for base > 0, relative error below 1e-15 * (1 + |exponent * log(base)|); for RoPE frequencies.
double power(double base, double exponent);

// One row of a RoPE table, [inv_freq.size()] each. Angles are FP32 as the publishers compute them (position *
// inv_freq[i], rounded once), their cosine and sine double, rounded to FP32, then times `scale` (1 but for YaRN and
// LongRoPE).
void rope_row(float position, std::span<const float> inv_freq, float scale, float* cos, float* sin);

}  // namespace onw
