#include "targets/reference/kv_cache.h"

#include <cstring>

#include "base/half.h"
#include "kernels/scalar.h"

namespace onw::reference {
namespace {

// x in `format` at `to`; returns the scale (INT8 alone has one).
uint16_t store(KvFormat format, std::span<const float> x, std::byte* to) {
  if (format == KvFormat::int8) return scalar::quantise_kv(x, reinterpret_cast<int8_t*>(to));
  if (format == KvFormat::f32) {
    std::memcpy(to, x.data(), x.size_bytes());
    return 0;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const uint16_t half = float_to_half(x[i]);
    std::memcpy(to + 2 * i, &half, 2);
  }
  return 0;
}

}  // namespace

KvCache::KvCache(const StateDecl& state, KvFormat format)
    : state_(&state), format_(format), parts_(static_cast<size_t>(state.heads)) {}

int64_t KvCache::element_bytes() const { return format_ == KvFormat::int8 ? 1 : format_ == KvFormat::f16 ? 2 : 4; }

int64_t KvCache::bytes_per_position() const {
  const int64_t scales = format_ == KvFormat::int8 ? 4 : 0;
  return state_->heads * ((state_->head_dim + state_->value_dim) * element_bytes() + scales);
}

void KvCache::resize(int64_t length) {
  length_ = length;
  const auto n = static_cast<size_t>(length);
  for (Part& p : parts_) {
    p.k.resize(n * static_cast<size_t>(state_->head_dim * element_bytes()));
    p.v.resize(n * static_cast<size_t>(state_->value_dim * element_bytes()));
    if (format_ != KvFormat::int8) continue;
    p.k_scale.resize(n);
    p.v_scale.resize(n);
  }
}

void KvCache::truncate(int64_t length) {
  if (length < length_) resize(length);
}

void KvCache::write(int64_t position, std::span<const float> k, std::span<const float> v) {
  if (position >= length_) resize(position + 1);
  const auto p = static_cast<size_t>(position), d = static_cast<size_t>(state_->head_dim),
             dv = static_cast<size_t>(state_->value_dim);
  const auto bytes = static_cast<size_t>(element_bytes());
  for (size_t h = 0; h < parts_.size(); ++h) {
    Part& part = parts_[h];
    const uint16_t ks = store(format_, k.subspan(h * d, d), part.k.data() + p * d * bytes);
    const uint16_t vs = store(format_, v.subspan(h * dv, dv), part.v.data() + p * dv * bytes);
    if (format_ != KvFormat::int8) continue;
    part.k_scale[p] = ks;
    part.v_scale[p] = vs;
  }
}

}  // namespace onw::reference
