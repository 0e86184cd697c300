// The float forms of onw, written once. The reference target calls these functions; the kernels of every instruction
// set reproduce them bit for bit (a NaN equals any NaN). No libm but fma, division and square root, which IEEE 754
// fixes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace onw::scalar {

// ---- Functions of one number. Errors are measured against double over all floats (scalar_test.cpp).

// e^x, within 1 ulp. Results below 2^-126 are 0, above the largest float +inf; -inf gives 0, NaN stays NaN.
float exp(float x);
float tanh(float x);     // within 3 ulp
float sigmoid(float x);  // 1 / (1 + e^-x), within 3 ulp
float silu(float x);     // x / (1 + e^-x)
// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), computed as x / (1 + e^-2u).
float gelu_tanh(float x);
// x Phi(x) = x/2 (1 + erf(x / sqrt 2)); absolute error below 2^-23 |x|.
float gelu_erf(float x);
float softplus(float x);             // log(1 + e^x), within 4 ulp
float soft_cap(float x, float cap);  // cap * tanh(x / cap)
inline float relu(float x) { return x > 0 ? x : 0; }

// What a gated MLP, or a plain one, does between its products. Names are those of the graph's `activation`.
enum class Activation : uint8_t { silu, gelu_tanh, gelu, swiglu_clamped, sigmoid, relu, softplus };
std::string_view name(Activation activation);
std::optional<Activation> activation(std::string_view name);

// gelu is gelu_erf. Never swiglu_clamped, which needs two inputs.
float activate(Activation activation, float x);

// limit and alpha belong to swiglu_clamped alone (gpt-oss).
struct Gate {
  Activation activation = Activation::silu;
  float limit = 7;
  float alpha = 1.702f;
};

// activate(gate) * up; swiglu_clamped: g = min(gate, limit), u = clamp(up, -limit, limit), (u + 1) * (g / (1 +
// e^-(alpha g))).
float gated(const Gate& kind, float gate, float up);

// ---- Sums. Element i joins partial sum i mod 16, i ascending; then 8 + 8, 4 + 4, 2 + 2, 1 + 1.

float fold(float (&partial)[16]);  // overwrites its argument
float sum(std::span<const float> x);
float dot(std::span<const float> a, std::span<const float> b);  // partial = fma(a, b, partial)
inline float sum_of_squares(std::span<const float> x) { return dot(x, x); }

// ---- Rows. `out` may be the input itself.

// 1 / sqrt(sum_of_squares(x) / n + eps).
float rms_inverse(std::span<const float> x, float eps);
// (x * rms_inverse(x)) * weight; weight may be null: x * rms_inverse(x).
void rms_norm(std::span<const float> x, const float* weight, float eps, float* out);
// d = x - sum(x) / n, inv = 1 / sqrt(sum_of_squares(d) / n + eps): fma(d * inv, weight, bias); bias may be null: d *
// inv
// * weight.
void layer_norm(std::span<const float> x, const float* weight, const float* bias, float eps, float* out);
// x * inv, inv = 1 / sqrt(sum_of_squares(x) + eps).
void l2_norm(std::span<const float> x, float eps, float* out);

// Rotates the pairs (x[i], x[i + half]), i < half = cos.size(), in place; what lies behind 2 * half passes through.
//   x[i]        <- fma(x[i], cos[i], -(x[i + half] * sin[i]))
//   x[i + half] <- fma(x[i + half], cos[i], x[i] * sin[i])
void rope(float* x, std::span<const float> cos, std::span<const float> sin);

// e^(x - max) / sum of those; the sum as above.
void softmax(std::span<const float> x, float* out);

// ---- INT8 codes.

// The largest |x|; NaN if there is one (compared as bit patterns, so the order does not matter). 0 for no elements.
float amax(std::span<const float> x);

// One group of activations: scale = amax / 127, code = round-half-even(x * (127 / amax)). Where amax < 2^-100, or not
// finite, all codes are 0 and the scale is 0, or amax (so that the result is not finite either). Returns the scale.
float quantise(std::span<const float> x, int8_t* codes);

// One row of K or V of one head: scale = F16(max(amax / 127, 2^-14)), code = round-half-even(x * (1 / scale)), clamped
// to +-127. Where the scale is not finite in F16 all codes are 0.
struct KvScale {
  uint16_t half = 0;
  float inv = 0;  // 0 where the scale is not finite
};
KvScale kv_scale(float amax);
int8_t kv_code(float x, const KvScale& scale);
uint16_t quantise_kv(std::span<const float> x, int8_t* codes);  // both; returns the scale's F16 bits

// Nearest integer, ties to even, of |x| < 2^22.
inline int32_t round_half_even(float x) { return static_cast<int32_t>((x + 12582912.0f) - 12582912.0f); }

}  // namespace onw::scalar
