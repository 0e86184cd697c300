#include "kernels/rowops/rowops.h"

#include <array>

#include "kernels/rowops/tables.h"

namespace onw {
namespace {

constexpr std::array kTable = {
#define KERNEL(name, needs) RowOpsRow{#name, needs, &name},
#include "kernels/rowops/kernels.inc"
#undef KERNEL
};

}  // namespace

std::span<const RowOpsRow> row_ops_table() { return kTable; }

const RowOps& row_ops(Isa level) {
  const RowOps* best = kTable[0].ops;
  for (const RowOpsRow& row : kTable)
    if (runs_at(row.needs, level)) best = row.ops;
  return *best;
}

}  // namespace onw
