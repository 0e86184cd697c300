// The tables that kernels.inc names, one per instruction set.
#pragma once

#include "kernels/rowops/rowops.h"

namespace onw {

#define KERNEL(name, needs) extern const RowOps name;
#include "kernels/rowops/kernels.inc"
#undef KERNEL

}  // namespace onw
