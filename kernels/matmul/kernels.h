// The table of matmul kernels.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/isa.h"
#include "kernels/matmul/call.h"

namespace onw::matmul_kernels {

#define KERNEL(function, level, codes, rows) void function(const Call&);
#include "kernels/matmul/kernels.inc"
#undef KERNEL

struct KernelRow {
  std::string_view name;
  Kernel kernel;
  Isa isa;
  Codes codes;
  int64_t rows_from;
};

std::span<const KernelRow> kernel_table();

// The row that a call takes.
const KernelRow& select_kernel(Isa isa, Codes codes, int64_t rows);

}  // namespace onw::matmul_kernels
