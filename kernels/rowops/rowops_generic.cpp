#include <algorithm>
#include <span>

#include "kernels/rowops/tables.h"

namespace onw {
namespace {

std::span<const float> row(const float* x, int64_t n) { return {x, static_cast<size_t>(n)}; }

void rms_norm(const Norm& norm, const float* x, int64_t n, float* out) {
  scalar::rms_norm(row(x, n), norm.weight, norm.eps, out);
}

void layer_norm(const Norm& norm, const float* x, int64_t n, float* out) {
  scalar::layer_norm(row(x, n), norm.weight, norm.bias, norm.eps, out);
}

void l2_norm(float eps, const float* x, int64_t n, float* out) { scalar::l2_norm(row(x, n), eps, out); }

void rope(float* x, const float* cos, const float* sin, int64_t half) {
  scalar::rope(x, row(cos, half), row(sin, half));
}

void activate(scalar::Activation activation, const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i++) out[i] = scalar::activate(activation, x[i]);
}

void gated(const scalar::Gate& kind, const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i++) out[i] = scalar::gated(kind, gate[i], up[i]);
}

void add(const float* a, const float* b, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i];
}

void multiply(const float* a, const float* b, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i++) out[i] = a[i] * b[i];
}

void scale(float by, const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i++) out[i] = x[i] * by;
}

void soft_cap(float cap, const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i++) out[i] = scalar::soft_cap(x[i], cap);
}

void softmax(const float* x, int64_t n, float* out) { scalar::softmax(row(x, n), out); }

float sum(const float* x, int64_t n) { return scalar::sum(row(x, n)); }

float dot(const float* a, const float* b, int64_t n) { return scalar::dot(row(a, n), row(b, n)); }

// `values` fills `n` floats from input `at` on; each group of the part is quantised from them.
template <class Values>
void quantise_groups(const QuantizedPart& part, Values values) {
  const QuantizedRows& out = *part.out;
  float x[128];
  for (int64_t at = part.begin; at < part.end; at += out.group) {
    values(at, out.group, x);
    const int64_t slot = at / out.group * out.row_stride + part.row;
    int8_t* codes = out.codes + slot * out.group;
    out.scales[slot] = scalar::quantise(row(x, out.group), codes);
    for (int i = 0; i < out.group; i += 32) {
      int32_t total = 0;
      for (int k = i; k < i + 32; k++) total += codes[k];
      out.sums[(at + i) / 32 * out.row_stride + part.row] = total;
    }
  }
}

void quantise(const float* x, const QuantizedPart& part) {
  quantise_groups(part, [&](int64_t at, int n, float* to) { std::copy_n(x + (at - part.begin), n, to); });
}

void gated_quantise(const scalar::Gate& kind, const float* gate, const float* up, const QuantizedPart& part) {
  quantise_groups(part, [&](int64_t at, int n, float* to) {
    gated(kind, gate + (at - part.begin), up + (at - part.begin), n, to);
  });
}

void rms_norm_quantise(const Norm& norm, const float* x, const QuantizedRows& out, int64_t row_index) {
  const float inv = scalar::rms_inverse(row(x, out.inputs), norm.eps);
  quantise_groups({&out, row_index, 0, out.inputs}, [&](int64_t at, int n, float* to) {
    for (int i = 0; i < n; i++)
      to[i] = norm.weight == nullptr ? x[at + i] * inv : x[at + i] * inv * norm.weight[at + i];
  });
}

}  // namespace

const RowOps row_ops_generic = {
    rms_norm, layer_norm, l2_norm,  rope,           activate,         gated, add, multiply, scale, soft_cap, softmax,
    sum,      dot,        quantise, gated_quantise, rms_norm_quantise};

}  // namespace onw
