#include "kernels/rope_row.h"

#include <cstddef>

#include "base/trig.h"

namespace onw {

void rope_row(float position, std::span<const float> inv_freq, float scale, float* cos, float* sin) {
  for (size_t i = 0; i < inv_freq.size(); i++) {
    const float angle = position * inv_freq[i];
    const SinCos exact = sin_cos(angle);
    cos[i] = static_cast<float>(exact.cos) * scale;
    sin[i] = static_cast<float>(exact.sin) * scale;
  }
}

}  // namespace onw
