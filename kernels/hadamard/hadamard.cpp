#include "kernels/hadamard/hadamard.h"

#include <bit>
#include <cmath>

#include "base/result.h"
#include "kernels/hadamard/stages.h"

namespace onw {
namespace hadamard_kernels {

void stages_generic(float* z, int64_t block) {
  for (int64_t h = 1; h < block; h *= 2)
    for (int64_t i = 0; i < block; i += 2 * h)
      for (int64_t k = i; k < i + h; ++k) {
        const float a = z[k], b = z[k + h];
        z[k] = a + b;
        z[k + h] = a - b;
      }
}

}  // namespace hadamard_kernels

void hadamard(const Hadamard& form, const float* x, float* out, Isa isa) {
  CHECK(form.block > 0 && std::has_single_bit(static_cast<uint64_t>(form.block)) && form.n % form.block == 0);
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(form.block)));
  for (int64_t at = 0; at < form.n; at += form.block) {
    const float* signs = form.signs + at;
    float* z = out + at;
    for (int64_t i = 0; i < form.block; ++i) z[i] = form.inverse ? x[at + i] : x[at + i] * signs[i];
    if (runs_at(Isa::avx512vnni, isa) && form.block >= 16) {
      hadamard_kernels::stages_avx512vnni(z, form.block);
    } else if (runs_at(Isa::avx2, isa) && form.block >= 8) {
      hadamard_kernels::stages_avx2(z, form.block);
    } else {
      hadamard_kernels::stages_generic(z, form.block);
    }
    for (int64_t i = 0; i < form.block; ++i) z[i] = z[i] * scale;
    if (!form.inverse) continue;
    for (int64_t i = 0; i < form.block; ++i) z[i] = z[i] * signs[i];
  }
}

}  // namespace onw
