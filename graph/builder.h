// How families write a graph: one call per step. The first mistake is kept with the name of its step and comes out of
// finish(); calls after it do nothing, so a family needs no error handling of its own.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "graph/program.h"

namespace onw {

// What attention sees: every earlier token, or the last `tokens` including the row's own (0 < tokens).
struct Window {
  int64_t tokens = 0;
  static Window none() { return {}; }
  static Window last(int64_t tokens) { return {tokens}; }
};

struct AttentionOptions {
  double scale = 1;
  Window window;
  double soft_cap = 0;  // 0: none
  bool bidirectional = false;
};

class Builder {
 public:
  Builder(Program& program, std::string_view function);

  Value input(std::string_view name, Type type);
  // An input made before; CHECKs that it is there.
  Value find_input(std::string_view name) const;
  // Declares the weight (the same declaration twice is one weight) and gives its value.
  Value weight(const WeightDecl& declaration);
  void state(const StateDecl& declaration);

  // x [S, in], w [out, in] -> [S, out]. `step` names the node, as in every call below.
  Value linear(std::string_view step, Value x, Value w, std::optional<Value> bias = std::nullopt);
  Value rms_norm(std::string_view step, Value x, std::optional<Value> w, double eps);
  Value rope(std::string_view step, Value x, Value cos, Value sin);
  void kv_write(std::string_view step, std::string_view state, Value k, Value v);
  Value attention(std::string_view step, std::string_view state, Value q, const AttentionOptions& options,
                  std::optional<Value> sinks = std::nullopt);
  Value gated(std::string_view step, Value gate, Value up, std::string_view activation);
  Value add(std::string_view step, Value a, Value b);
  Value scale(std::string_view step, Value x, double by);  // the value itself where by is 1
  Value soft_cap(std::string_view step, Value x, double cap);
  Value reshape(std::string_view step, Value x, Shape shape);
  Value slice(std::string_view step, Value x, int64_t axis, int64_t begin, int64_t end);

  // Any op; the calls above are words for this one.
  Value node(Op op, std::string_view step, std::initializer_list<Value> inputs, Attributes attributes = {});
  Value node(Op op, std::string_view step, std::span<const Value> inputs, Attributes attributes);
  Value constant(std::string_view step, Shape shape, std::vector<float> values);

  // f32[S,1] for the values of calls after a mistake.
  const Type& type(Value v) const { return v.valid() ? function_.type(v) : kMistaken; }
  void output(std::string_view name, Value value);

  // Moves the function into the program, or gives the first mistake.
  Result<void> finish();

 private:
  friend class Scope;
  inline static const Type kMistaken = {DType::f32, {kRows, 1}, 0};
  std::string label(std::string_view step) const;
  Value add_node(Node node);

  Program& program_;
  Function function_;
  std::string prefix_;
  std::optional<Error> error_;
};

// Every node made while it lives prints as "L07/<step>"; weights declared by name keep theirs.
class Scope {
 public:
  Scope(Builder& builder, int layer);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Builder& builder_;
  std::string before_;
};

}  // namespace onw
