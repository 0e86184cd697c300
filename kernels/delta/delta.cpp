#include "kernels/delta/delta.h"

#include <array>

#include "kernels/delta/tables.h"

namespace onw {
namespace {

constexpr std::array kTable = {
#define KERNEL(name, needs) DeltaOpsRow{#name, needs, &name},
#include "kernels/delta/kernels.inc"
#undef KERNEL
};

}  // namespace

std::span<const DeltaOpsRow> delta_ops_table() { return kTable; }

const DeltaOps& delta_ops(Isa level) {
  const DeltaOps* best = kTable[0].ops;
  for (const DeltaOpsRow& row : kTable)
    if (runs_at(row.needs, level)) best = row.ops;
  return *best;
}

}  // namespace onw
