#include "kernels/matmul/functions.h"
#include "kernels/matmul/kernels_u2_ymm.h"

namespace onw::matmul_kernels {

void twos_row_avxvnni(const Call& c) { one_row_of_twos<Dot::vnni>(c); }
void twos_few_avxvnni(const Call& c) { few_rows_of_twos<Dot::vnni>(c); }
void twos_many_avxvnni(const Call& c) { many_rows_of_twos<Dot::vnni>(c); }

}  // namespace onw::matmul_kernels
