// Sine, cosine, exponential and logarithm in double, our own: libm's differ by version, and RoPE tables must be equal
// on every machine. Only + - * / and fma, so the bits are fixed.
#pragma once

namespace onw {

struct SinCos {
  double sin;
  double cos;
};

// Absolute error below 1e-15 for |angle| <= 2^24 rad. NaN for NaN and from 2^30 rad on.
SinCos sin_cos(double angle);

// base^exponent for base > 0, relative error below 1e-15 * (1 + |exponent * log(base)|); for RoPE frequencies.
double power(double base, double exponent);

// The natural logarithm of x > 0, relative error below 1e-15.
double natural_log(double x);

}  // namespace onw
