#include "kernels/delta/reference.h"

#include <cmath>

#include "kernels/scalar.h"

namespace onw::scalar {
namespace {

std::span<const float> row(const float* x, int64_t n) { return {x, static_cast<size_t>(n)}; }

float power_of_e(float x) { return x < kLeastExponent ? 0.0f : exp(x); }

}  // namespace

void gated_delta_row(const DeltaChunk& d, int t) {
  const float least = d.g[t] < kLeastLogDecay ? kLeastLogDecay : d.g[t];
  const float c = (t > 0 ? d.c[(t - 1) * d.log_stride] : 0.0f) + least;
  d.c[t * d.log_stride] = c;
  const float decay = power_of_e(c);
  float of_u[kDeltaChunk], of_out[kDeltaChunk];
  for (int j = 0; j <= t; ++j) {
    const float since = power_of_e(c - d.c[j * d.log_stride]);
    of_u[j] = since * dot(row(d.k[j], d.key_dim), row(d.k[t], d.key_dim));
    of_out[j] = since * dot(row(d.k[j], d.key_dim), row(d.q[t], d.key_dim));
  }
  float* u = d.u + t * d.log_stride;
  for (int64_t x = 0; x < d.value_dim; ++x) {
    float m = 0, n = 0;
    for (int64_t i = 0; i < d.key_dim; ++i) {
      m = std::fma(d.edge[i * d.value_dim + x], d.k[t][i], m);
      n = std::fma(d.edge[i * d.value_dim + x], d.q[t][i], n);
    }
    float a = std::fma(-decay, m, d.v[t][x]);
    float out = decay * n;
    for (int j = 0; j < t; ++j) {
      a = std::fma(-of_u[j], d.u[j * d.log_stride + x], a);
      out = std::fma(of_out[j], d.u[j * d.log_stride + x], out);
    }
    u[x] = d.beta[t] * a;
    d.out[t][x] = std::fma(of_out[t], u[x], out);
  }
}

void gated_delta_edge(const DeltaChunk& d) {
  const float c = d.c[(kDeltaChunk - 1) * d.log_stride];
  const float decay = power_of_e(c);
  float since[kDeltaChunk];
  for (int j = 0; j < kDeltaChunk; ++j) since[j] = power_of_e(c - d.c[j * d.log_stride]);
  for (int64_t i = 0; i < d.key_dim; ++i) {
    for (int64_t x = 0; x < d.value_dim; ++x) {
      float s = decay * d.edge[i * d.value_dim + x];
      for (int j = 0; j < kDeltaChunk; ++j) s = std::fma(since[j] * d.k[j][i], d.u[j * d.log_stride + x], s);
      d.next_edge[i * d.value_dim + x] = s;
    }
  }
}

void conv_row(const ConvRow& r) {
  for (int64_t c = r.begin; c < r.end; ++c) {
    float y = r.bias == nullptr ? 0.0f : r.bias[c];
    for (int64_t j = 0; j < r.kernel; ++j) y = std::fma(r.w[j * r.channels + c], r.x[j][c], y);
    r.y[c] = y;
  }
}

}  // namespace onw::scalar
