#include "graph/op.h"

#include <algorithm>
#include <iterator>

#include "graph/ops.h"

namespace onw {
namespace {

constexpr OpInfo kOps[] = {
#define OP(name, level, least, most, effect) {Op::name, #name, Level::level, least, most, effect},
#include "graph/ops.inc"
#undef OP
};

}  // namespace

const OpInfo& info(Op op) { return kOps[static_cast<size_t>(op)]; }

std::string_view name(Op op) { return info(op).name; }

std::optional<Op> op(std::string_view name) {
  const auto* found = std::ranges::find(kOps, name, &OpInfo::name);
  if (found == std::end(kOps)) return std::nullopt;
  return found->op;
}

}  // namespace onw
