#include "kernels/attention/attention_impl.h"
#include "kernels/simd_avx512.h"

namespace onw {

constexpr AttentionOps attention_ops_avx512vnni = attention::Kernels<Avx512>::table();

}  // namespace onw
