#include "base/trig.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace onw {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kRounder = 0x1.8p52;  // adding it rounds to an integer
constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kLn2Rest = 0x1.abc9e3b39803fp-56;

double nearest_integer(double x) { return (x + kRounder) - kRounder; }

// Taylor series on |x| <= pi/4, innermost term first; the first one left out is below 2^-57 of the result.
double sin_near_zero(double x) {
  const double y = x * x;
  double t = 0;  // sin x = x (1 - y/(2*3) (1 - y/(4*5) (1 - ...)))
  for (int k = 17; k >= 3; k -= 2) t = y / ((k - 1) * k) * (1.0 - t);
  return std::fma(-t, x, x);
}

double cos_near_zero(double x) {
  const double y = x * x;
  double t = 0;
  for (int k = 18; k >= 2; k -= 2) t = y / ((k - 1) * k) * (1.0 - t);
  return 1.0 - t;
}

// log(2^e m) = e ln 2 + 2 atanh((m - 1) / (m + 1)), sqrt(1/2) <= m < sqrt(2).
double log(double x) {
  int e = 0;
  double m = std::frexp(x, &e);
  if (m < 0x1.6a09e667f3bcdp-1) m *= 2, e--;
  const double s = (m - 1.0) / (m + 1.0);
  const double y = s * s;
  double series = 0;
  for (int k = 25; k >= 3; k -= 2) series = (series + 1.0 / k) * y;
  const double half = std::fma(series, s, s);
  return std::fma(e, kLn2, std::fma(e, kLn2Rest, 2.0 * half));
}

double exp(double x) {
  if (x < -746) return 0;
  if (x > 710) return std::numeric_limits<double>::infinity();
  const double n = nearest_integer(x * 0x1.71547652b82fep+0);
  double r = std::fma(-n, kLn2, x);
  r = std::fma(-n, kLn2Rest, r);
  double t = 0;  // e^r = 1 + r (1 + r/2 (1 + r/3 (1 + ...)))
  for (int k = 15; k >= 2; k--) t = r / k * (1.0 + t);
  return std::ldexp(1.0 + std::fma(r, t, r), static_cast<int>(n));
}

}  // namespace

SinCos sin_cos(double angle) {
  if (!(std::fabs(angle) < 0x1p30)) return {kNan, kNan};
  const double n = nearest_integer(angle * 0x1.45f306dc9c883p-1);  // quarter turns
  double r = std::fma(-n, 0x1.921fb54442d18p+0, angle);            // pi/2 in three parts; exact below 2^24 rad
  r = std::fma(-n, 0x1.1a62633145c07p-54, r);
  r = std::fma(-n, -0x1.f1976b7ed8fbcp-110, r);
  const double s = sin_near_zero(r);
  const double c = cos_near_zero(r);
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

double power(double base, double exponent) { return exp(exponent * log(base)); }

double natural_log(double x) { return log(x); }

}  // namespace onw
