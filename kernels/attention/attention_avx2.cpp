#include "kernels/attention/attention_impl.h"
#include "kernels/simd_avx2.h"

namespace onw {

constexpr AttentionOps attention_ops_avx2 = attention::Kernels<Avx2>::table();

}  // namespace onw
