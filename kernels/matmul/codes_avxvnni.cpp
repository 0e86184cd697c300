#include "kernels/matmul/functions.h"
#include "kernels/matmul/kernels_ymm.h"

namespace onw::matmul_kernels {

void nibbles_row_avxvnni(const Call& c) { one_row<Codes::nibbles, Dot::vnni>(c); }
void levels_row_avxvnni(const Call& c) { one_row<Codes::levels, Dot::vnni>(c); }
void bytes_row_avxvnni(const Call& c) { one_row<Codes::bytes, Dot::vnni>(c); }
void nibbles_few_avxvnni(const Call& c) { few_rows<Codes::nibbles, Dot::vnni>(c); }
void levels_few_avxvnni(const Call& c) { few_rows<Codes::levels, Dot::vnni>(c); }
void bytes_few_avxvnni(const Call& c) { few_rows<Codes::bytes, Dot::vnni>(c); }
void nibbles_many_avxvnni(const Call& c) { many_rows<Codes::nibbles, Dot::vnni>(c); }
void levels_many_avxvnni(const Call& c) { many_rows<Codes::levels, Dot::vnni>(c); }
void bytes_many_avxvnni(const Call& c) { many_rows<Codes::bytes, Dot::vnni>(c); }

}  // namespace onw::matmul_kernels
