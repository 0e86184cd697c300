// Short convolutions and the gated delta rule as primitives: a part of decompose, for fixed numbers of rows. States are
// inputs and outputs, and no step of a recurrence is a loop:
//   conv   input "<state>.before" [kernel - 1, channels], the inputs before the rows (none for a kernel of one); output
//          "<state>.rows" [kernel - 1 + rows, channels], those and the rows: after row i the state is [i + 1, i +
//          kernel)
//   delta  input "<state>.before" S [heads, head_dim, value_dim]; outputs "<state>.after", of up to 4 rows the state
//          after each [rows, heads, head_dim, value_dim], of more the one after all [1, ...]; and what a log keeps of
//          the rows (targets/recurrent_state.h): "<state>.k" [rows, key_heads, head_dim], "<state>.u" [rows, heads,
//          value_dim] and "<state>.g" [rows, heads], the logarithms of the decays
// Where more than 4 rows meet a delta state, "rows_used" [rows, 1] is an input, too: 1 for a row, 0 for those behind
// the last, which leave the state alone.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/program.h"

namespace onw {

// Up to so many rows follow each other by the recurrence; more go in chunks.
constexpr int64_t kRecurrentRows = 4;
constexpr int64_t kDeltaChunkRows = 16;

class StateDecomposer {
 public:
  // Appends to `to`.
  StateDecomposer(const Program& program, Function& to, int64_t rows) : program_(program), to_(to), rows_(rows) {}

  // The result of the coarse node, its inputs in `to`. Errors: internal for types that do not fit.
  Result<Value> lower(const Node& coarse, std::vector<Value> inputs);

  // The outputs of the states lowered so far.
  const std::vector<Output>& outputs() const { return outputs_; }

 private:
  // Values of [heads, ...]: a head beside the other, as batches of the products.
  struct Delta {
    Value k, q;     // [heads, rows, head_dim]
    Value v;        // [heads, rows, value_dim]
    Value g, beta;  // [heads, rows]
  };
  // What rows of one chunk, or one of the recurrence, give.
  struct Part {
    Value out, u, state;  // [heads, rows, value_dim] twice, [heads, head_dim, value_dim]
  };

  Value conv_update();
  Value gated_delta();
  Value of_value_heads(Value x);
  Part row(const Delta& d, int64_t t, Value before);
  Part chunk(const Delta& d, int64_t begin, int64_t end, Value before);
  Value inverse(Value lower);
  Value rows_used();
  const StateDecl& state() const;

  Value node(Op op, std::vector<Value> inputs, Attributes attributes = {});
  Value leaf(Op op, std::string label, Shape shape, std::vector<float> values = {});
  // values(row, column) of a matrix.
  Value matrix(int64_t rows, int64_t columns, const std::function<bool(int64_t, int64_t)>& one);
  Value add(Value a, Value b);
  Value subtract(Value a, Value b);
  Value mul(Value a, Value b);
  Value matmul(Value a, Value b, bool transposed = false);
  Value reshape(Value x, Shape to);
  Value transpose(Value x, std::vector<int64_t> order);
  Value slice(Value x, int64_t axis, int64_t begin, int64_t end);
  Value concat(std::vector<Value> parts, int64_t axis);
  const Shape& shape(Value v) const { return to_.type(v).shape; }

  const Program& program_;
  Function& to_;
  int64_t rows_;
  const Node* current_ = nullptr;
  std::vector<Value> in_;
  std::vector<Output> outputs_;
  Value rows_used_;
  int part_ = 0;
  std::optional<Error> error_;
};

}  // namespace onw
