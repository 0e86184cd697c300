#include "kernels/scalar.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "base/result.h"
#include "kernels/coefficients.h"

namespace onw::scalar {

using namespace forms;  // coefficients

namespace {

// In the order of Activation.
constexpr std::array<std::string_view, 7> kActivations = {"silu",    "gelu_tanh", "gelu",    "swiglu_clamped",
                                                          "sigmoid", "relu",      "softplus"};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <size_t N>
float polynomial(const float (&coefficients)[N], float x) {
  float p = coefficients[0];
  for (size_t i = 1; i < N; i++) p = std::fma(p, x, coefficients[i]);
  return p;
}

}  // namespace

float exp(float x) {
  if (x < kExpLowest) return 0;
  if (!(x <= kExpHighest)) return x + kInfinity;
  const float shifted = std::fma(x, kLog2E, kRounder);  // n = x / ln 2
  const float n = shifted - kRounder;
  float r = std::fma(n, kMinusLn2, x);  // exact
  r = std::fma(n, kMinusLn2Rest, r);
  const float p = 1.0f + std::fma(polynomial(kExpTail, r), r * r, r);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23));  // p * 2^n
}

float tanh(float x) {
  const float a = std::fabs(x);
  const float y = x * x;
  if (a < 0.625f) return std::fma(polynomial(kTanhTail, y) * y, x, x);
  return std::copysign(1.0f - 2.0f / (exp(a + a) + 1.0f), x);
}

float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

float silu(float x) { return x / (1.0f + exp(-x)); }

float gelu_tanh(float x) {
  const float minus_2u = x * std::fma(x * x, -kGeluCubic, -kGeluLinear);
  return x / (1.0f + exp(minus_2u));
}

float gelu_erf(float x) {
  const float a = std::fabs(x);
  if (a < 1.25f) {
    const float p = polynomial(kPhiOdd, x * x);
    return x * std::fma(p, x, 0.5f);
  }
  // Phi(-a) = e^(-a^2/2) u(1 / (1 + a/3)); the rounding of a^2/2 is put back to first order.
  const float b = std::min(a, 14.5f);  // e^(-a^2/2) is 0 from 13.3 on
  const float half = 0.5f * b;
  const float square = half * b;
  const float lost = std::fma(half, b, -square);
  float e = exp(-square);
  e = std::fma(-lost, e, e);
  const float tail = e * polynomial(kPhiTail, 3.0f / (b + 3.0f));
  const float phi = x < 0 ? tail : 1.0f - tail;
  return x * phi;
}

float softplus(float x) {
  const float e = exp(-std::fabs(x));
  const float s = e / (e + 2.0f);  // log(1 + e) = 2 atanh(e / (2 + e))
  const float y = s * s;
  const float half_log = std::fma(polynomial(kAtanhTail, y) * y, s, s);
  return std::fma(2.0f, half_log, x > 0 ? x : 0.0f);
}

float soft_cap(float x, float cap) { return cap * tanh(x / cap); }

std::string_view name(Activation activation) { return kActivations[static_cast<size_t>(activation)]; }

std::optional<Activation> activation(std::string_view name) {
  const auto found = std::ranges::find(kActivations, name);
  if (found == kActivations.end()) return std::nullopt;
  return static_cast<Activation>(found - kActivations.begin());
}

float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::silu:
      return silu(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::gelu:
      return gelu_erf(x);
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::relu:
      return relu(x);
    case Activation::softplus:
      return softplus(x);
    case Activation::swiglu_clamped:
      break;
  }
  CHECK(activation != Activation::swiglu_clamped);
  return x;
}

float gated(const Gate& kind, float gate, float up) {
  if (kind.activation != Activation::swiglu_clamped) return activate(kind.activation, gate) * up;
  const float g = gate > kind.limit ? kind.limit : gate;
  const float low = up < -kind.limit ? -kind.limit : up;
  const float u = low > kind.limit ? kind.limit : low;
  return (u + 1.0f) * (g / (1.0f + exp(-(kind.alpha * g))));
}

float fold(float (&partial)[16]) {
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; i++) partial[i] += partial[i + width];
  return partial[0];
}

float sum(std::span<const float> x) {
  float partial[16] = {};
  for (size_t i = 0; i < x.size(); i++) partial[i % 16] += x[i];
  return fold(partial);
}

float dot(std::span<const float> a, std::span<const float> b) {
  float partial[16] = {};
  for (size_t i = 0; i < a.size(); i++) partial[i % 16] = std::fma(a[i], b[i], partial[i % 16]);
  return fold(partial);
}

float rms_inverse(std::span<const float> x, float eps) {
  return 1.0f / std::sqrt(sum_of_squares(x) / static_cast<float>(x.size()) + eps);
}

void rms_norm(std::span<const float> x, const float* weight, float eps, float* out) {
  const float inv = rms_inverse(x, eps);
  for (size_t i = 0; i < x.size(); i++) out[i] = weight == nullptr ? x[i] * inv : (x[i] * inv) * weight[i];
}

void layer_norm(std::span<const float> x, const float* weight, const float* bias, float eps, float* out) {
  const float n = static_cast<float>(x.size());
  const float mean = sum(x) / n;
  float partial[16] = {};
  for (size_t i = 0; i < x.size(); i++) {
    const float d = x[i] - mean;
    partial[i % 16] = std::fma(d, d, partial[i % 16]);
  }
  const float inv = 1.0f / std::sqrt(fold(partial) / n + eps);
  for (size_t i = 0; i < x.size(); i++) {
    const float y = (x[i] - mean) * inv;
    out[i] = bias == nullptr ? y * weight[i] : std::fma(y, weight[i], bias[i]);
  }
}

void l2_norm(std::span<const float> x, float eps, float* out) {
  const float inv = 1.0f / std::sqrt(sum_of_squares(x) + eps);
  for (size_t i = 0; i < x.size(); i++) out[i] = x[i] * inv;
}

void rope(float* x, std::span<const float> cos, std::span<const float> sin) {
  const size_t half = cos.size();
  for (size_t i = 0; i < half; i++) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = std::fma(a, cos[i], -(b * sin[i]));
    x[i + half] = std::fma(b, cos[i], a * sin[i]);
  }
}

void softmax(std::span<const float> x, float* out) {
  float largest = -kInfinity;
  for (const float v : x) largest = v > largest ? v : largest;
  for (size_t i = 0; i < x.size(); i++) out[i] = exp(x[i] - largest);
  const float total = sum({out, x.size()});
  for (size_t i = 0; i < x.size(); i++) out[i] = out[i] / total;
}

float amax(std::span<const float> x) {
  uint32_t largest = 0;
  for (const float v : x) largest = std::max(largest, std::bit_cast<uint32_t>(v) & 0x7fffffffu);
  return std::bit_cast<float>(largest);
}

float quantise(std::span<const float> x, int8_t* codes) {
  const float largest = amax(x);
  if (!(largest >= 0x1p-100f && largest < kInfinity)) {
    std::fill_n(codes, x.size(), int8_t{0});
    return largest < 0x1p-100f ? 0.0f : largest;
  }
  const float inv = 127.0f / largest;
  for (size_t i = 0; i < x.size(); i++) codes[i] = static_cast<int8_t>(round_half_even(x[i] * inv));
  return largest / 127.0f;
}

KvScale kv_scale(float amax) {
  const float exact = amax / 127.0f;
  const uint16_t half = float_to_half(exact < 0x1p-14f ? 0x1p-14f : exact);
  const float scale = half_to_float(half);
  return {half, scale < kInfinity ? 1.0f / scale : 0.0f};
}

int8_t kv_code(float x, const KvScale& scale) {
  if (scale.inv == 0) return 0;
  return static_cast<int8_t>(std::clamp(round_half_even(x * scale.inv), -127, 127));
}

uint16_t quantise_kv(std::span<const float> x, int8_t* codes) {
  const KvScale scale = kv_scale(amax(x));
  for (size_t i = 0; i < x.size(); i++) codes[i] = kv_code(x[i], scale);
  return scale.half;
}

}  // namespace onw::scalar
