// The IR: functions of nodes in the order in which they run. One node, one value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "graph/op.h"
#include "graph/type.h"

namespace onw {

// A value is the node that makes it: its place in Function::nodes.
struct Value {
  int32_t id = -1;
  bool valid() const { return id >= 0; }
  auto operator<=>(const Value&) const = default;
};

using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

// Few and small, so a list in the order in which they print.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, Attribute>> list) : list_(list) {}

  void set(std::string_view key, Attribute value);
  const Attribute* find(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t otherwise = 0) const;
  double number(std::string_view key, double otherwise = 0) const;  // an integer is a number too
  std::string_view text(std::string_view key, std::string_view otherwise = "") const;
  const std::vector<int64_t>& integers(std::string_view key) const;  // CHECKs that it is there
  const std::vector<std::pair<std::string, Attribute>>& list() const { return list_; }
  bool operator==(const Attributes&) const = default;

 private:
  std::vector<std::pair<std::string, Attribute>> list_;
};

struct Node {
  Op op = Op{};       // input
  std::string label;  // the step, as people read it: "L07/q_proj"; for inputs and weights their name
  std::vector<Value> inputs;
  Attributes attributes;
  Type type;
  std::vector<float> constant;  // Op::constant only
};

struct Output {
  std::string name;
  Value value;
};

struct Function {
  std::string name;
  std::vector<Node> nodes;  // inputs of a node come before it
  std::vector<Output> outputs;

  const Node& node(Value v) const { return nodes[static_cast<size_t>(v.id)]; }
  Node& node(Value v) { return nodes[static_cast<size_t>(v.id)]; }
  const Type& type(Value v) const { return node(v).type; }
};

}  // namespace onw
