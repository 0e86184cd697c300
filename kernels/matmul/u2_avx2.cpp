#include "kernels/matmul/functions.h"
#include "kernels/matmul/kernels_u2_ymm.h"

namespace onw::matmul_kernels {

void twos_row_avx2(const Call& c) { one_row_of_twos<Dot::pairs>(c); }
void twos_few_avx2(const Call& c) { few_rows_of_twos<Dot::pairs>(c); }
void twos_many_avx2(const Call& c) { many_rows_of_twos<Dot::pairs>(c); }

}  // namespace onw::matmul_kernels
