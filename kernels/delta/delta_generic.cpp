#include "kernels/delta/reference.h"
#include "kernels/delta/tables.h"

namespace onw {
namespace {

void chunk(const DeltaChunk& d) {
  for (int t = d.first; t < d.last; ++t) scalar::gated_delta_row(d, t);
  if (d.last == kDeltaChunk) scalar::gated_delta_edge(d);
}

}  // namespace

constexpr DeltaOps delta_ops_generic = {chunk, scalar::conv_row};

}  // namespace onw
