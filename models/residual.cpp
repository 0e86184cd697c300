#include "models/residual.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "graph/ops.h"

namespace onw {
namespace {

struct Stream {
  std::set<Value> values;            // the embedding, every sum, and what is scaled as a whole
  std::vector<std::string> writers;  // weights of what is added
};

// What `v` adds to the stream, back to its beginning; a sum `within` a branch (of experts and an MLP beside them) is
// none of the stream's own.
Result<void> follow(const Function& f, Value v, Stream& stream, bool within = false) {
  const Node& n = f.node(v);
  const auto weights = [&](size_t first) {
    for (size_t i = first; i < n.inputs.size(); ++i) stream.writers.push_back(f.node(n.inputs[i]).label);
  };
  switch (n.op) {
    case Op::input:
      stream.values.insert(v);
      return {};
    case Op::add:
      if (!within) stream.values.insert(v);
      RETURN_IF_ERROR(follow(f, n.inputs[0], stream, within));
      return follow(f, n.inputs[1], stream, true);
    case Op::scale:
      return follow(f, n.inputs[0], stream, within);
    case Op::linear:
      weights(1);
      return {};
    case Op::multiply:  // by one number a row, as the gate of a shared expert is, or by one for all
      if (f.node(n.inputs[1]).op == Op::weight && f.type(n.inputs[1]).shape == Shape{1}) {
        if (!within) stream.values.insert(v);
        return follow(f, n.inputs[0], stream, within);
      }
      if (f.type(n.inputs[0]).last() == 1) return follow(f, n.inputs[1], stream, within);
      break;
    case Op::experts:  // down, and its bias
      stream.writers.push_back(f.node(n.inputs[4]).label);
      if (n.inputs.size() > 7) stream.writers.push_back(f.node(n.inputs[7]).label);
      return {};
    case Op::rms_norm:
      if (n.inputs.size() == 2) {
        weights(1);
        return {};
      }
      break;
    default:
      break;
  }
  return error(Code::unsupported, "the residual stream of this family cannot be scaled: step '{}' writes to it",
               n.label);
}

Result<Stream> residual_stream(const Function& body) {
  Stream stream;
  const auto hidden = std::ranges::find(body.outputs, "hidden", &Output::name);
  CHECK(hidden != body.outputs.end());
  const Node& last = body.node(hidden->value);
  if (last.op != Op::rms_norm)
    return error(Code::unsupported,
                 "the residual stream of this family cannot be scaled: it ends in '{}', not in a norm", last.label);
  RETURN_IF_ERROR(follow(body, last.inputs[0], stream));
  for (const Node& n : body.nodes)
    for (const Value v : n.inputs)
      if (stream.values.contains(v) && n.op != Op::rms_norm && n.op != Op::add && n.op != Op::linear &&
          n.op != Op::multiply)
        return error(Code::unsupported, "the residual stream of this family cannot be scaled: step '{}' reads it",
                     n.label);
  return stream;
}

// Whether it is a product that reads the stream without a norm before: what it gives is divided with it.
bool reads_bare(const Node& n, const Stream& stream) {
  return n.op == Op::linear && stream.values.contains(n.inputs[0]);
}

// Behind every such product a step that takes the division back.
void scale_back(Function& f, const Stream& stream, int shift) {
  std::vector<Node> nodes;
  std::vector<Value> now;
  for (Node& n : f.nodes) {
    const bool bare = reads_bare(n, stream);
    for (Value& v : n.inputs) v = now[static_cast<size_t>(v.id)];
    const Type type = n.type;
    const std::string label = n.label + "_whole";
    nodes.push_back(std::move(n));
    Value made{static_cast<int32_t>(nodes.size()) - 1};
    if (bare) {
      nodes.push_back({Op::scale, label, {made}, {{"by", std::ldexp(1.0, shift)}}, type, {}});
      ++made.id;
    }
    now.push_back(made);
  }
  f.nodes = std::move(nodes);
  for (Output& o : f.outputs) o.value = now[static_cast<size_t>(o.value.id)];
}

}  // namespace

Result<std::vector<std::string>> residual_writers(const Program& program) {
  auto stream = residual_stream(*program.function("body"));
  RETURN_IF_ERROR(stream);
  return std::move(stream->writers);
}

Result<void> shift_residual(Program& program, int shift) {
  const auto body = std::ranges::find(program.functions, "body", &Function::name);
  CHECK(body != program.functions.end());
  const auto stream = residual_stream(*body);
  RETURN_IF_ERROR(stream);
  program.embedding_scale = std::ldexp(program.embedding_scale, -shift);
  for (Node& n : body->nodes)
    if (n.op == Op::rms_norm && stream->values.contains(n.inputs[0]))
      n.attributes.set("eps", std::ldexp(n.attributes.number("eps"), -2 * shift));
  scale_back(*body, *stream, shift);
  return {};
}

}  // namespace onw
