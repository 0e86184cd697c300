// Every kernel of the table, declared. All that the files with wide instructions include.
#pragma once

#include "kernels/matmul/call.h"

namespace onw::matmul_kernels {

#define KERNEL(function, level, codes, from, to) void function(const Call&);
#include "kernels/matmul/kernels.inc"
#undef KERNEL

}  // namespace onw::matmul_kernels
