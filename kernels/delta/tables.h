// The tables that kernels.inc names, one per instruction set.
#pragma once

#include "kernels/delta/delta.h"

namespace onw {

#define KERNEL(name, needs) extern const DeltaOps name;
#include "kernels/delta/kernels.inc"
#undef KERNEL

}  // namespace onw
