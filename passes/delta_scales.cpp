#include "passes/delta_scales.h"

#include <algorithm>

#include "graph/ops.h"
#include "passes/rewrite.h"

namespace onw {
namespace {

constexpr double kQueryScale = 32;
constexpr double kResultScale = kQueryScale * static_cast<double>(kDeltaStateScale);

class Scaler {
 public:
  explicit Scaler(const Function& from) : from_(from), to_(from), uses_(from) {}

  Function run() {
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      const Value v{static_cast<int32_t>(i)};
      const Node& n = from_.nodes[i];
      if (n.op == Op::gated_delta) {
        delta(v);
        continue;
      }
      const Value now = to_.copy(v);
      if (n.op == Op::rms_norm && from_.node(n.inputs[0]).op == Op::gated_delta && by_norms_alone(n.inputs[0]))
        to_.node(now).attributes.set("eps", n.attributes.number("eps") * kResultScale * kResultScale);
    }
    return to_.finish();
  }

 private:
  // Whether nothing but norms reads it: those take it as it is.
  bool by_norms_alone(Value v) const {
    const auto i = static_cast<size_t>(v.id);
    return uses_.outputs[i] == 0 &&
           std::ranges::all_of(uses_.users[i], [&](Value user) { return from_.node(user).op == Op::rms_norm; });
  }

  Value scaled(std::string label, Value x, const Type& type, double by) {
    return to_.append({Op::scale, std::move(label), {x}, {{"by", by}}, type, {}});
  }

  void delta(Value old) {
    const Node& coarse = from_.node(old);
    Node n = coarse;
    for (Value& in : n.inputs) in = to_.map(in);
    n.inputs[0] = scaled(sub_label(n, "q_scale"), n.inputs[0], from_.type(coarse.inputs[0]), kQueryScale);
    n.inputs[2] = scaled(sub_label(n, "v_scale"), n.inputs[2], from_.type(coarse.inputs[2]),
                         static_cast<double>(kDeltaStateScale));
    const Type type = n.type;
    const std::string label = sub_label(n, "result_scale");
    Value y = to_.append(std::move(n));
    if (!by_norms_alone(old)) y = scaled(label, y, type, 1 / kResultScale);
    to_.replace(old, y);
  }

  const Function& from_;
  Rewriter to_;
  Uses uses_;
};

}  // namespace

Function delta_scales(const Function& function) { return Scaler(function).run(); }

}  // namespace onw
