// The table of matmul kernels.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/isa.h"
#include "kernels/matmul/functions.h"

namespace onw::matmul_kernels {

constexpr int64_t kAnyRows = INT64_MAX;

struct KernelRow {
  std::string_view name;
  Kernel kernel;
  Isa isa;
  Codes codes;
  int64_t rows_from;
  int64_t rows_to;
  bool for_amd = false;  // the fastest on AMD's processors alone; it runs on all that have the level
};

std::span<const KernelRow> kernel_table();

// The row that a call takes, on a processor of AMD or another.
const KernelRow& select_kernel(Isa isa, Codes codes, int64_t rows, bool amd);
// On this one.
const KernelRow& select_kernel(Isa isa, Codes codes, int64_t rows);

}  // namespace onw::matmul_kernels
