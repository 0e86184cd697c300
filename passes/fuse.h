// Two or three steps that one kernel runs: norm + quantise, gated activation + quantise, product + residual.
#pragma once

#include "graph/program.h"

namespace onw {

// A step is fused only where nothing else reads what lies between. The results keep their bits.
Program fuse(const Program& program);

}  // namespace onw
