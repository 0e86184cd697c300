// Every kernel of the table, declared. All that the files with wide instructions include.
#pragma once

#include "kernels/matmul/call.h"

namespace onw::matmul_kernels {

#define KERNEL(function, level, codes, from, to) void function(const Call&);
#define AMD_KERNEL KERNEL
#include "kernels/matmul/kernels.inc"
#undef AMD_KERNEL
#undef KERNEL

}  // namespace onw::matmul_kernels
