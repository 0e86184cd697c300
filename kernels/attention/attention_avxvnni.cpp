#include "kernels/attention/attention_impl.h"
#include "kernels/simd_avx2.h"

namespace onw {
namespace {

struct AvxVnni : Avx2 {
  static I dot(I acc, I u, I s) { return _mm256_dpbusd_avx_epi32(acc, u, s); }
};

}  // namespace

constexpr AttentionOps attention_ops_avxvnni = attention::Kernels<AvxVnni>::table();

}  // namespace onw
