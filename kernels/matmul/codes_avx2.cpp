#include "kernels/matmul/functions.h"
#include "kernels/matmul/kernels_ymm.h"

namespace onw::matmul_kernels {

void nibbles_row_avx2(const Call& c) { one_row<Codes::nibbles, Dot::pairs>(c); }
void levels_row_avx2(const Call& c) { one_row<Codes::levels, Dot::signs>(c); }
void bytes_row_avx2(const Call& c) { one_row<Codes::bytes, Dot::signs>(c); }
void nibbles_few_avx2(const Call& c) { few_rows<Codes::nibbles, Dot::pairs>(c); }
void levels_few_avx2(const Call& c) { few_rows<Codes::levels, Dot::signs>(c); }
void bytes_few_avx2(const Call& c) { few_rows<Codes::bytes, Dot::signs>(c); }
void nibbles_many_avx2(const Call& c) { many_rows<Codes::nibbles, Dot::pairs>(c); }
void levels_many_avx2(const Call& c) { many_rows<Codes::levels, Dot::signs>(c); }
void bytes_many_avx2(const Call& c) { many_rows<Codes::bytes, Dot::signs>(c); }

}  // namespace onw::matmul_kernels
