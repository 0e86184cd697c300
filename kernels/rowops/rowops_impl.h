// The row operations over vectors; a file per instruction set makes a table of them for its struct of kernels/simd_*.h.
#pragma once

#include "kernels/float_forms.h"
#include "kernels/rowops/tables.h"

namespace onw::rowops {

// Calls body(i, lanes, part) for vectors of n elements: `lanes` of them from i on, part = i / lanes of a vector mod
// the vectors that 16 elements take. Loads and stores with lanes < V::kLanes are masked.
template <class V, class Body>
inline void for_vectors(int64_t n, Body body) {
  constexpr int kParts = 16 / V::kLanes;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int part = 0; part < kParts; part++) body(i + part * V::kLanes, V::kLanes, part);
  for (int part = 0; i < n; i += V::kLanes, part++)
    body(i, static_cast<int>(n - i < V::kLanes ? n - i : V::kLanes), part);
}

// out[i] = f(a[i]) and out[i] = f(a[i], b[i]).
template <class V, class Function>
inline void map(const float* a, int64_t n, float* out, Function f) {
  for_vectors<V>(n, [&](int64_t i, int lanes, int) { V::store(out + i, f(V::load(a + i, lanes)), lanes); });
}
template <class V, class Function>
inline void map(const float* a, const float* b, int64_t n, float* out, Function f) {
  for_vectors<V>(
      n, [&](int64_t i, int lanes, int) { V::store(out + i, f(V::load(a + i, lanes), V::load(b + i, lanes)), lanes); });
}

// The 16 partial sums of a row.
template <class V>
struct Partials {
  typename V::F part[16 / V::kLanes];
  Partials() {
    for (auto& p : part) p = V::set(0.0f);
  }
  float fold() const { return V::fold(part); }
};

// Calls use(f) with the activation as a function of a vector, chosen outside the loop.
template <class V, class Use>
inline void with_activation(scalar::Activation activation, Use use) {
  using F = typename V::F;
  switch (activation) {
    case scalar::Activation::silu:
      return use([](F x) { return forms::silu<V>(x); });
    case scalar::Activation::gelu_tanh:
      return use([](F x) { return forms::gelu_tanh<V>(x); });
    case scalar::Activation::gelu:
      return use([](F x) { return forms::gelu_erf<V>(x); });
    case scalar::Activation::sigmoid:
      return use([](F x) { return forms::sigmoid<V>(x); });
    case scalar::Activation::relu:
      return use([](F x) { return forms::relu<V>(x); });
    case scalar::Activation::softplus:
      return use([](F x) { return forms::softplus<V>(x); });
    case scalar::Activation::swiglu_clamped:
      return;
  }
}

template <class V>
struct Kernels {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int L = V::kLanes;

  static float sum(const float* x, int64_t n) {
    Partials<V> s;
    for_vectors<V>(n, [&](int64_t i, int lanes, int part) { s.part[part] = s.part[part] + V::load(x + i, lanes); });
    return s.fold();
  }

  static float dot(const float* a, const float* b, int64_t n) {
    Partials<V> s;
    for_vectors<V>(n, [&](int64_t i, int lanes, int part) {
      s.part[part] = V::fma(V::load(a + i, lanes), V::load(b + i, lanes), s.part[part]);
    });
    return s.fold();
  }

  static float rms_inverse(const float* x, int64_t n, float eps) {
    return 1.0f / __builtin_sqrtf(dot(x, x, n) / static_cast<float>(n) + eps);
  }

  static void rms_norm(const Norm& norm, const float* x, int64_t n, float* out) {
    const F inv = V::set(rms_inverse(x, n, norm.eps));
    if (norm.weight == nullptr) return map<V>(x, n, out, [&](F v) { return v * inv; });
    map<V>(x, norm.weight, n, out, [&](F v, F w) { return (v * inv) * w; });
  }

  static void layer_norm(const Norm& norm, const float* x, int64_t n, float* out) {
    const float count = static_cast<float>(n);
    const F mean = V::set(sum(x, n) / count);
    Partials<V> s;
    for_vectors<V>(n, [&](int64_t i, int lanes, int part) {
      F d = V::load(x + i, lanes) - mean;
      if (lanes < L) d = V::select(V::lanes(0, lanes), d, V::set(0.0f));
      s.part[part] = V::fma(d, d, s.part[part]);
    });
    const F inv = V::set(1.0f / __builtin_sqrtf(s.fold() / count + norm.eps));
    if (norm.bias == nullptr) return map<V>(x, norm.weight, n, out, [&](F v, F w) { return ((v - mean) * inv) * w; });
    for_vectors<V>(n, [&](int64_t i, int lanes, int) {
      const F y = (V::load(x + i, lanes) - mean) * inv;
      V::store(out + i, V::fma(y, V::load(norm.weight + i, lanes), V::load(norm.bias + i, lanes)), lanes);
    });
  }

  static void l2_norm(float eps, const float* x, int64_t n, float* out) {
    const F inv = V::set(1.0f / __builtin_sqrtf(dot(x, x, n) + eps));
    map<V>(x, n, out, [&](F v) { return v * inv; });
  }

  static void rope(float* x, const float* cos, const float* sin, int64_t half) {
    for_vectors<V>(half, [&](int64_t i, int lanes, int) {
      const F a = V::load(x + i, lanes), b = V::load(x + half + i, lanes);
      const F c = V::load(cos + i, lanes), s = V::load(sin + i, lanes);
      V::store(x + i, V::fma(a, c, -(b * s)), lanes);
      V::store(x + half + i, V::fma(b, c, a * s), lanes);
    });
  }

  static void activate(scalar::Activation activation, const float* x, int64_t n, float* out) {
    with_activation<V>(activation, [&](auto f) { map<V>(x, n, out, f); });
  }

  static void gated(const scalar::Gate& kind, const float* gate, const float* up, int64_t n, float* out) {
    if (kind.activation != scalar::Activation::swiglu_clamped)
      return with_activation<V>(kind.activation,
                                [&](auto f) { map<V>(gate, up, n, out, [&](F g, F u) { return f(g) * u; }); });
    const F high = V::set(kind.limit), low = V::set(-kind.limit), alpha = V::set(kind.alpha), one = V::set(1.0f);
    map<V>(gate, up, n, out, [&](F gate_in, F up_in) {
      const F g = V::select(V::less(high, gate_in), high, gate_in);
      const F above = V::select(V::less(up_in, low), low, up_in);
      const F u = V::select(V::less(high, above), high, above);
      return (u + one) * (g / (one + forms::exp<V>(-(alpha * g))));
    });
  }

  static void add(const float* a, const float* b, int64_t n, float* out) {
    map<V>(a, b, n, out, [](F x, F y) { return x + y; });
  }

  static void multiply(const float* a, const float* b, int64_t n, float* out) {
    map<V>(a, b, n, out, [](F x, F y) { return x * y; });
  }

  static void scale(float by, const float* x, int64_t n, float* out) {
    map<V>(x, n, out, [&](F v) { return v * V::set(by); });
  }

  static void soft_cap(float cap, const float* x, int64_t n, float* out) {
    map<V>(x, n, out, [&](F v) { return forms::soft_cap<V>(v, cap); });
  }

  static void softmax(const float* x, int64_t n, float* out) {
    const F lowest = V::set(-__builtin_inff());
    F largest = lowest;
    for_vectors<V>(n, [&](int64_t i, int lanes, int) {
      F v = V::load(x + i, lanes);
      if (lanes < L) v = V::select(V::lanes(0, lanes), v, lowest);
      largest = V::max(v, largest);
    });
    const F top = V::set(V::reduce_max(largest));
    map<V>(x, n, out, [&](F v) { return forms::exp<V>(v - top); });
    const F total = V::set(sum(out, n));
    map<V>(out, n, out, [&](F v) { return v / total; });
  }

  // One group of kGroup values, which values(i) gives as vectors, i = 0, L, 2L...
  template <int kGroup, class Values>
  static void quantise_group(const QuantizedRows& out, int64_t row, int64_t at, Values values) {
    constexpr int kVectors = kGroup / L;
    F x[kVectors];
    I magnitude = V::izero();
    for (int v = 0; v < kVectors; v++) {
      x[v] = values(v * L);
      magnitude = V::max_magnitude(magnitude, x[v]);
    }
    const float largest = V::reduce_max(magnitude);
    const bool usable = largest >= 0x1p-100f && largest < __builtin_inff();
    const float inv = usable ? 127.0f / largest : 0.0f;
    const int64_t slot = at / kGroup * out.row_stride + row;
    int8_t* codes = out.codes + slot * kGroup;
    out.scales[slot] = usable ? largest / 127.0f : largest < 0x1p-100f ? 0.0f : largest;
    int32_t* sums = out.sums + at / 32 * out.row_stride + row;
    for (int i = 0; i < kGroup; i += 32) {
      I total = V::izero();
      for (int k = i; k < i + 32; k += 16) {
        I code[16 / L];
        for (int h = 0; h < 16 / L; h++) {
          code[h] = usable ? V::round(x[k / L + h] * V::set(inv)) : V::izero();
          total = V::add(total, code[h]);
        }
        V::store_codes(codes + k, code);
      }
      sums[i / 32 * out.row_stride] = V::reduce_add(total);
    }
  }

  // values(i): the vector of inputs from part.begin + i on.
  template <class Values>
  static void quantise_groups(const QuantizedPart& part, Values values) {
    const QuantizedRows& out = *part.out;
    for (int64_t at = part.begin; at < part.end; at += out.group) {
      const auto here = [&](int64_t i) { return values(at - part.begin + i); };
      if (out.group == 128) {
        quantise_group<128>(out, part.row, at, here);
      } else if (out.group == 64) {
        quantise_group<64>(out, part.row, at, here);
      } else {
        quantise_group<32>(out, part.row, at, here);
      }
    }
  }

  static void quantise(const float* x, const QuantizedPart& part) {
    quantise_groups(part, [&](int64_t i) { return V::load(x + i); });
  }

  static void gated_quantise(const scalar::Gate& kind, const float* gate, const float* up, const QuantizedPart& part) {
    float values[128];
    for (int64_t at = part.begin; at < part.end; at += part.out->group) {
      const int64_t i = at - part.begin;
      gated(kind, gate + i, up + i, part.out->group, values);
      quantise(values, {part.out, part.row, at, at + part.out->group});
    }
  }

  static void rms_norm_quantise(const Norm& norm, const float* x, const QuantizedRows& out, int64_t row) {
    const F inv = V::set(rms_inverse(x, out.inputs, norm.eps));
    const QuantizedPart all = {&out, row, 0, out.inputs};
    if (norm.weight == nullptr) return quantise_groups(all, [&](int64_t i) { return V::load(x + i) * inv; });
    quantise_groups(all, [&](int64_t i) { return V::load(x + i) * inv * V::load(norm.weight + i); });
  }

  static constexpr RowOps table() {
    return {rms_norm,
            layer_norm,
            l2_norm,
            rope,
            activate,
            gated,
            add,
            multiply,
            scale,
            soft_cap,
            softmax,
            sum,
            dot,
            quantise,
            gated_quantise,
            rms_norm_quantise};
  }
};

}  // namespace onw::rowops
