// The list of ops. Each is one row of ops.inc.
#pragma once

#include "graph/op.h"

namespace onw {

enum class Op : uint8_t {
#define OP(name, level, least, most, effect) name,
#include "graph/ops.inc"
#undef OP
};

}  // namespace onw
