#include "kernels/rowops/rowops_impl.h"
#include "kernels/simd_avx512.h"

namespace onw {

constexpr RowOps row_ops_avx512vnni = rowops::Kernels<Avx512>::table();

}  // namespace onw
