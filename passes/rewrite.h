// Copying a function node by node while changing it: the way every pass is written, so that the input stays as it was.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "graph/program.h"

namespace onw {

class Rewriter {
 public:
  explicit Rewriter(const Function& from) : from_(from), map_(from.nodes.size()) { to_.name = from.name; }

  // The old node as it is, its inputs mapped; or a new one. Both return the new value.
  Value copy(Value old);
  Value append(Node node);
  // Users of `old` that are copied from now on take `now`.
  void replace(Value old, Value now) { map_[static_cast<size_t>(old.id)] = now; }
  Node& node(Value now) { return to_.node(now); }
  Value map(Value old) const { return map_[static_cast<size_t>(old.id)]; }

  // With the outputs of the old function, and without nodes that nothing uses (inputs and effects stay).
  Function finish();

 private:
  const Function& from_;
  Function to_;
  std::vector<Value> map_;
};

// Who uses each value; outputs of the function are counted in `outputs`.
struct Uses {
  std::vector<std::vector<Value>> users;
  std::vector<int> outputs;
  explicit Uses(const Function& f);
  bool only_user(Value v, Value user) const {
    const auto i = static_cast<size_t>(v.id);
    return outputs[i] == 0 && users[i].size() == 1 && users[i][0] == user;
  }
};

// "L07/q_proj" and "quantize" -> "L07/q_proj.quantize".
std::string sub_label(const Node& node, std::string_view part);

// One of the nodes into which a pass takes a step apart, numbered because the last one of a step is not known before.
struct PartOf {
  const Node& step;
  int number;
  std::optional<Error>& error;  // the first one: inputs that do not fit
};
// Appends it to `to`, its type as the op's shape rule says; behind an error it is of any shape.
Value append_part(Function& to, const PartOf& part, Op op, std::vector<Value> inputs, Attributes attributes);

}  // namespace onw
