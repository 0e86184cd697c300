#include "graph/builder.h"

#include "graph/ops.h"
#include "graph/shape_rules.h"
#include "graph/verifier.h"

namespace onw {

Builder::Builder(Program& program, std::string_view function) : program_(program) { function_.name = function; }

std::string Builder::label(std::string_view step) const { return prefix_ + std::string(step); }

Value Builder::add_node(Node node) {
  function_.nodes.push_back(std::move(node));
  return Value{static_cast<int32_t>(function_.nodes.size()) - 1};
}

Value Builder::input(std::string_view name, Type type) {
  return add_node({Op::input, std::string(name), {}, {}, std::move(type), {}});
}

Value Builder::find_input(std::string_view name) const {
  for (size_t i = 0; i < function_.nodes.size(); ++i)
    if (function_.nodes[i].op == Op::input && function_.nodes[i].label == name) return Value{static_cast<int32_t>(i)};
  CHECK(false && "no such input");
  return {};
}

Value Builder::weight(const WeightDecl& declaration) {
  if (program_.weight(declaration.name) == nullptr) program_.weights.push_back(declaration);
  for (size_t i = 0; i < function_.nodes.size(); ++i)
    if (function_.nodes[i].op == Op::weight && function_.nodes[i].label == declaration.name)
      return Value{static_cast<int32_t>(i)};
  return add_node({Op::weight, declaration.name, {}, {}, Type{DType::f32, declaration.shape, 0}, {}});
}

void Builder::state(const StateDecl& declaration) {
  if (program_.state(declaration.name) < 0) program_.states.push_back(declaration);
}

Value Builder::node(Op op, std::string_view step, std::initializer_list<Value> inputs, Attributes attributes) {
  return node(op, step, std::span(inputs.begin(), inputs.size()), std::move(attributes));
}

Value Builder::node(Op op, std::string_view step, std::span<const Value> inputs, Attributes attributes) {
  if (error_) return {};
  std::vector<Type> types;
  for (const Value v : inputs) {
    CHECK(v.valid());  // an invalid value comes only after an error, and then nothing gets here
    types.push_back(function_.type(v));
  }
  auto type = result_type(op, types, attributes);
  if (!type) {
    error_ = Error{type.error().code, fmt::format("{}: {}", label(step), type.error().message)};
    return {};
  }
  return add_node({op, label(step), {inputs.begin(), inputs.end()}, std::move(attributes), std::move(*type), {}});
}

Value Builder::constant(std::string_view step, Shape shape, std::vector<float> values) {
  return add_node({Op::constant, label(step), {}, {}, Type{DType::f32, std::move(shape), 0}, std::move(values)});
}

Value Builder::linear(std::string_view step, Value x, Value w, std::optional<Value> bias) {
  return bias ? node(Op::linear, step, {x, w, *bias}) : node(Op::linear, step, {x, w});
}

Value Builder::rms_norm(std::string_view step, Value x, std::optional<Value> w, double eps) {
  const Attributes a = {{"eps", eps}};
  return w ? node(Op::rms_norm, step, {x, *w}, a) : node(Op::rms_norm, step, {x}, a);
}

Value Builder::rope(std::string_view step, Value x, Value cos, Value sin) {
  return node(Op::rope, step, {x, cos, sin});
}

void Builder::kv_write(std::string_view step, std::string_view state, Value k, Value v) {
  node(Op::kv_write, step, {k, v}, {{"state", std::string(state)}});
}

Value Builder::attention(std::string_view step, std::string_view state, Value q, const AttentionOptions& options,
                         std::optional<Value> sinks) {
  if (error_) return {};
  Attributes a = {{"state", std::string(state)}, {"scale", options.scale}};
  if (options.window.tokens > 0) a.set("window", options.window.tokens);
  if (options.soft_cap > 0) a.set("soft_cap", options.soft_cap);
  if (options.bidirectional) a.set("bidirectional", int64_t{1});
  const int index = program_.state(state);
  if (index >= 0) {
    const StateDecl& s = program_.states[static_cast<size_t>(index)];
    if (s.value_dim != type(q).last()) a.set("value_dim", s.value_dim);
  }
  return sinks ? node(Op::attention, step, {q, *sinks}, a) : node(Op::attention, step, {q}, a);
}

Value Builder::gated(std::string_view step, Value gate, Value up, std::string_view activation) {
  return node(Op::gated, step, {gate, up}, {{"activation", std::string(activation)}});
}

Value Builder::add(std::string_view step, Value a, Value b) { return node(Op::add, step, {a, b}); }

Value Builder::scale(std::string_view step, Value x, double by) {
  return by == 1 ? x : node(Op::scale, step, {x}, {{"by", by}});
}

Value Builder::soft_cap(std::string_view step, Value x, double cap) {
  return node(Op::soft_cap, step, {x}, {{"cap", cap}});
}

Value Builder::reshape(std::string_view step, Value x, Shape shape) {
  return node(Op::reshape, step, {x}, {{"shape", std::move(shape)}});
}

Value Builder::slice(std::string_view step, Value x, int64_t axis, int64_t begin, int64_t end) {
  return node(Op::slice, step, {x}, {{"axis", axis}, {"begin", begin}, {"end", end}});
}

void Builder::output(std::string_view name, Value value) { function_.outputs.push_back({std::string(name), value}); }

Result<void> Builder::finish() {
  if (error_) return Failure(Error{error_->code, fmt::format("{}: {}", function_.name, error_->message)});
  program_.functions.push_back(std::move(function_));
  return verify(program_.functions.back(), program_);
}

Scope::Scope(Builder& builder, int layer) : builder_(builder), before_(builder.prefix_) {
  builder.prefix_ = fmt::format("L{:02}/", layer);
}

Scope::~Scope() { builder_.prefix_ = before_; }

}  // namespace onw
