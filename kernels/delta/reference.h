// The arithmetic of kernels/delta/delta.h, one row after another: what the reference target calls, and what the tests
// hold every kernel against.
#pragma once

#include "kernels/delta/delta.h"

namespace onw::scalar {

// The row in `slot`, chunk.first <= slot < chunk.last: writes its out, u and c. Those before it are done.
void gated_delta_row(const DeltaChunk& chunk, int slot);

// chunk.next_edge, once all 16 rows are done.
void gated_delta_edge(const DeltaChunk& chunk);

void conv_row(const ConvRow& row);

}  // namespace onw::scalar
