#include "targets/openvino/supported.h"

#include <algorithm>

#include "graph/ops.h"

namespace onw::openvino {
namespace {

struct CpuAlone {
  Op op;
  std::string_view what;
};
constexpr CpuAlone kCpuAlone[] = {
    {Op::gated_delta, "layers with the gated delta rule"},
    {Op::conv_update, "layers with short convolutions"},
    {Op::experts, "mixtures of experts"},
};

}  // namespace

Result<void> check_supported(const Program& program, std::string_view device) {
  for (const CpuAlone& row : kCpuAlone)
    for (const Function& f : program.functions)
      if (std::ranges::find(f.nodes, row.op, &Node::op) != f.nodes.end())
        return error(Code::unsupported,
                     "models of the family {} have {}, which run on the CPU so far, not on {}: take --device CPU",
                     program.family, row.what, device);
  return {};
}

}  // namespace onw::openvino
