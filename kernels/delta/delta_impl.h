// The gated delta rule over vectors of the value dimension, in which every element is computed by itself; a file per
// instruction set makes a table of it for its struct of kernels/simd_*.h.
#pragma once

#include "kernels/delta/tables.h"
#include "kernels/float_forms.h"
#include "kernels/rowops/rowops_impl.h"

namespace onw::delta {

template <class V>
struct Kernels {
  using F = typename V::F;
  static constexpr int L = V::kLanes;
  static constexpr int kSums = L == 16 ? 16 : 8;  // vectors of sums that registers hold beside the operands
  static constexpr int64_t kStrip = 128;          // columns worked on together

  // What all columns share, by slot.
  struct Weights {
    float decay[kDeltaChunk];
    float minus_of_u[kDeltaChunk][kDeltaChunk];
    float of_out[kDeltaChunk][kDeltaChunk];
    float until_edge[kDeltaChunk];
  };

  static float dot(const float* a, const float* b, int64_t n) { return rowops::Kernels<V>::dot(a, b, n); }

  static F power_of_e(F x) { return V::select(V::less(x, V::set(kLeastExponent)), V::set(0.0f), forms::exp<V>(x)); }

  static void weigh(const DeltaChunk& d, Weights& w) {
    float c[kDeltaChunk] = {};
    for (int j = 0; j < d.first; ++j) c[j] = d.c[j * d.log_stride];
    for (int t = d.first; t < d.last; ++t) {
      c[t] = (t > 0 ? c[t - 1] : 0.0f) + (d.g[t] < kLeastLogDecay ? kLeastLogDecay : d.g[t]);
      d.c[t * d.log_stride] = c[t];
      w.decay[t] = V::first_lane(power_of_e(V::set(c[t])));
      float* since = w.until_edge;  // the last row's stay
      for (int j = 0; j < kDeltaChunk; j += L) V::store(since + j, power_of_e(V::set(c[t]) - V::load(c + j)));
      for (int j = 0; j <= t; ++j) {
        w.minus_of_u[t][j] = -(since[j] * dot(d.k[j], d.k[t], d.key_dim));
        w.of_out[t][j] = since[j] * dot(d.k[j], d.q[t], d.key_dim);
      }
    }
  }

  template <bool kWhole>
  static F load(const float* p, int lanes) {
    if constexpr (kWhole) return V::load(p);
    return V::load(p, lanes);
  }
  template <bool kWhole>
  static void store(float* p, F x, int lanes) {
    if constexpr (kWhole) return V::store(p, x);
    V::store(p, x, lanes);
  }

  // S'k and S'q of R rows from slot t on, N vectors from column x on, to m and n [16][kStrip].
  template <int R, int N, bool kWhole>
  static void project(const DeltaChunk& d, int t, int64_t x, int lanes, float* m, float* n) {
    F with_k[R][N], with_q[R][N];
    const float *k[R], *q[R];
    for (int r = 0; r < R; ++r) {
      k[r] = d.k[t + r], q[r] = d.q[t + r];
      for (int v = 0; v < N; ++v) with_k[r][v] = with_q[r][v] = V::set(0.0f);
    }
    const float* edge = d.edge + x;
    for (int64_t i = 0; i < d.key_dim; ++i, edge += d.value_dim) {
      F s[N];
      for (int v = 0; v < N; ++v) s[v] = load<kWhole>(edge + v * L, lanes);
      for (int r = 0; r < R; ++r) {
        const F ki = V::set(k[r][i]), qi = V::set(q[r][i]);
        for (int v = 0; v < N; ++v) {
          with_k[r][v] = V::fma(s[v], ki, with_k[r][v]);
          with_q[r][v] = V::fma(s[v], qi, with_q[r][v]);
        }
      }
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < N; ++v) {
        store<kWhole>(m + (t + r) * kStrip + v * L, with_k[r][v], lanes);
        store<kWhole>(n + (t + r) * kStrip + v * L, with_q[r][v], lanes);
      }
  }

  // The same for the strip's `width` columns.
  template <int R>
  static void project_strip(const DeltaChunk& d, int t, int64_t x, int64_t width, float* m, float* n) {
    constexpr int N = kSums / (2 * R);
    int64_t at = 0;
    for (; at + N * L <= width; at += N * L) project<R, N, true>(d, t, x + at, L, m + at, n + at);
    for (; at + L <= width; at += L) project<R, 1, true>(d, t, x + at, L, m + at, n + at);
    if (at < width) project<R, 1, false>(d, t, x + at, static_cast<int>(width - at), m + at, n + at);
  }

  // u and out of slot t, N vectors from column x on.
  template <int N, bool kWhole>
  static void row(const DeltaChunk& d, const Weights& w, int t, int64_t x, int lanes, const float* m, const float* n) {
    const F decay = V::set(w.decay[t]), minus_decay = V::set(-w.decay[t]);
    F a[N], out[N];
    for (int v = 0; v < N; ++v) {
      a[v] = V::fma(minus_decay, load<kWhole>(m + v * L, lanes), load<kWhole>(d.v[t] + x + v * L, lanes));
      out[v] = decay * load<kWhole>(n + v * L, lanes);
    }
    const float* u = d.u + x;
    for (int j = 0; j < t; ++j, u += d.log_stride) {
      const F of_u = V::set(w.minus_of_u[t][j]), of_out = V::set(w.of_out[t][j]);
      for (int v = 0; v < N; ++v) {
        const F uj = load<kWhole>(u + v * L, lanes);
        a[v] = V::fma(of_u, uj, a[v]);
        out[v] = V::fma(of_out, uj, out[v]);
      }
    }
    const F beta = V::set(d.beta[t]), of_own = V::set(w.of_out[t][t]);
    for (int v = 0; v < N; ++v) {
      a[v] = beta * a[v];
      store<kWhole>(d.u + t * d.log_stride + x + v * L, a[v], lanes);
      store<kWhole>(d.out[t] + x + v * L, V::fma(of_own, a[v], out[v]), lanes);
    }
  }

  // I rows of the next edge from i on, N vectors from column x on.
  template <int I, int N, bool kWhole>
  static void edge(const DeltaChunk& d, const Weights& w, int64_t i, int64_t x, int lanes) {
    const F decay = V::set(w.decay[kDeltaChunk - 1]);
    F s[I][N];
    for (int r = 0; r < I; ++r)
      for (int v = 0; v < N; ++v) s[r][v] = decay * load<kWhole>(d.edge + (i + r) * d.value_dim + x + v * L, lanes);
    const float* from = d.u + x;
    for (int j = 0; j < kDeltaChunk; ++j, from += d.log_stride) {
      F u[N];
      for (int v = 0; v < N; ++v) u[v] = load<kWhole>(from + v * L, lanes);
      for (int r = 0; r < I; ++r) {
        const F k = V::set(w.until_edge[j] * d.k[j][i + r]);
        for (int v = 0; v < N; ++v) s[r][v] = V::fma(k, u[v], s[r][v]);
      }
    }
    for (int r = 0; r < I; ++r)
      for (int v = 0; v < N; ++v) store<kWhole>(d.next_edge + (i + r) * d.value_dim + x + v * L, s[r][v], lanes);
  }

  template <int N, bool kWhole>
  static void edge_columns(const DeltaChunk& d, const Weights& w, int64_t x, int lanes) {
    constexpr int I = kSums / 4;
    int64_t i = 0;
    for (; i + I <= d.key_dim; i += I) edge<I, N, kWhole>(d, w, i, x, lanes);
    for (; i < d.key_dim; ++i) edge<1, N, kWhole>(d, w, i, x, lanes);
  }

  // use(N, whole, column, lanes) for `width` columns: four vectors, single ones, and what is left.
  template <class Use>
  static void columns(int64_t width, Use use) {
    int64_t at = 0;
    for (; at + 4 * L <= width; at += 4 * L) use.template operator()<4, true>(at, L);
    for (; at + L <= width; at += L) use.template operator()<1, true>(at, L);
    if (at < width) use.template operator()<1, false>(at, static_cast<int>(width - at));
  }

  static void strip(const DeltaChunk& d, const Weights& w, int64_t x, int64_t width) {
    float m[kDeltaChunk * kStrip], n[kDeltaChunk * kStrip];
    int t = d.first;
    for (; t + 4 <= d.last; t += 4) project_strip<4>(d, t, x, width, m, n);
    for (; t + 2 <= d.last; t += 2) project_strip<2>(d, t, x, width, m, n);
    for (; t < d.last; ++t) project_strip<1>(d, t, x, width, m, n);
    for (t = d.first; t < d.last; ++t)
      columns(width, [&]<int N, bool kWhole>(int64_t at, int lanes) {
        row<N, kWhole>(d, w, t, x + at, lanes, m + t * kStrip + at, n + t * kStrip + at);
      });
    if (d.last == kDeltaChunk)
      columns(width, [&]<int N, bool kWhole>(int64_t at, int lanes) { edge_columns<N, kWhole>(d, w, x + at, lanes); });
  }

  static void chunk(const DeltaChunk& d) {
    Weights w;
    weigh(d, w);
    for (int64_t x = 0; x < d.value_dim; x += kStrip)
      strip(d, w, x, kStrip < d.value_dim - x ? kStrip : d.value_dim - x);
  }

  static void conv(const ConvRow& r) {
    rowops::for_vectors<V>(r.end - r.begin, [&](int64_t i, int lanes, int) {
      const int64_t c = r.begin + i;
      F y = r.bias == nullptr ? V::set(0.0f) : V::load(r.bias + c, lanes);
      for (int64_t j = 0; j < r.kernel; ++j)
        y = V::fma(V::load(r.w + j * r.channels + c, lanes), V::load(r.x[j] + c, lanes), y);
      V::store(r.y + c, y, lanes);
    });
  }

  static constexpr DeltaOps table() { return {chunk, conv}; }
};

}  // namespace onw::delta
