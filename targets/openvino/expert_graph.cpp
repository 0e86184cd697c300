#include "targets/openvino/expert_graph.h"

#include <algorithm>

#include "base/result.h"
#include "graph/builder.h"
#include "graph/ops.h"
#include "graph/verifier.h"
#include "passes/decompose.h"

namespace onw::openvino {
namespace {

class ExpertGraph {
 public:
  ExpertGraph(Builder& b, const ExpertShape& shape)
      : b_(b),
        s_(shape),
        x_(b.input("x", rows_of(shape.all_rows(), shape.hidden))),
        scales_(f32("scales_f32", b.input("scales", {DType::f16, {shape.slots, shape.scales()}}))) {
    if (s_.biases) biases_ = b.input("biases", rows_of(s_.slots, s_.scales()));
    if (!s_.grouped) weight_ = b.input("weight", rows_of(s_.rows, s_.slots));
    if (s_.chooses()) chosen_ = b.input("chosen", rows_of(s_.rows, s_.slots));
  }

  Value result() {
    std::vector<Value> parts;
    for (int64_t s = 0; s < s_.slots; ++s) {
      slot_ = s;
      const Value y = expert(rows());
      parts.push_back(s_.grouped ? y : b_.node(Op::multiply, step("weighed"), {y, column("weight", weight_)}));
    }
    if (s_.grouped) return one_behind_another(std::move(parts));
    Value sum = parts.front();
    for (size_t i = 1; i < parts.size(); ++i) sum = b_.add(fmt::format("sum{}", i), sum, parts[i]);
    return sum;
  }

 private:
  static Type rows_of(int64_t rows, int64_t width) { return {DType::f32, {rows, width}}; }

  std::string step(std::string_view name) const { return fmt::format("{}.{}", name, slot_); }
  Value f32(std::string_view name, Value x) { return b_.node(Op::convert, name, {x}, {{"dtype", std::string("f32")}}); }
  Value column(std::string_view name, Value of) {
    return b_.slice(step(fmt::format("{}_column", name)), of, 1, slot_, slot_ + 1);
  }

  // So many at a time as the op takes.
  Value one_behind_another(std::vector<Value> parts) {
    const auto most = static_cast<size_t>(info(Op::concat).most_inputs);
    for (int level = 0; parts.size() > 1; ++level) {
      std::vector<Value> longer;
      for (size_t i = 0; i < parts.size(); i += most) {
        const auto some = std::span(parts).subspan(i, std::min(most, parts.size() - i));
        longer.push_back(some.size() == 1
                             ? some.front()
                             : b_.node(Op::concat, fmt::format("rows.{}.{}", level, i), some, {{"axis", int64_t{0}}}));
      }
      parts = std::move(longer);
    }
    return parts.front();
  }

  // What the slot computes. A row that does not choose it is zero there: whatever the expert would make of it, 0 times
  // that must be a number.
  Value rows() {
    if (s_.grouped && s_.slots > 1) return b_.slice(step("rows"), x_, 0, slot_ * s_.rows, (slot_ + 1) * s_.rows);
    if (!s_.chooses()) return x_;
    return b_.node(Op::multiply, step("chosen"), {x_, column("chosen", chosen_)});
  }

  // x times the transposed codes, then scaled, then with the bias; `begin` is the place of both in those of the slot.
  Value product(std::string_view name, Value x, int64_t outputs, int64_t begin) {
    const Value codes = b_.input(step(name), {DType::i4, {outputs, b_.type(x).last()}});
    const Value raw = b_.node(Op::matmul, step(fmt::format("{}_raw", name)),
                              {x, f32(step(fmt::format("{}_codes", name)), codes)}, {{"transpose_b", int64_t{1}}});
    const auto of_slot = [&](std::string_view what, Value all) {
      const Value row =
          s_.slots == 1 ? all : b_.slice(step(fmt::format("{}_{}s", name, what)), all, 0, slot_, slot_ + 1);
      return b_.slice(step(fmt::format("{}_{}", name, what)), row, 1, begin, begin + outputs);
    };
    const Value y = b_.node(Op::multiply, step(fmt::format("{}_scaled", name)), {raw, of_slot("scale", scales_)});
    return s_.biases ? b_.add(step(fmt::format("{}_biased", name)), y, of_slot("bias", biases_)) : y;
  }

  Value expert(Value x) {
    const Value both = product("gate_up", x, 2 * s_.inner, 0);
    const Value gate = b_.slice(step("gate"), both, 1, 0, s_.inner);
    const Value up = b_.slice(step("up"), both, 1, s_.inner, 2 * s_.inner);
    Attributes a{{"activation", s_.activation}};
    if (s_.activation == "swiglu_clamped") a.set("limit", s_.limit), a.set("alpha", s_.alpha);
    return product("down", b_.node(Op::gated, step("inner"), {gate, up}, std::move(a)), s_.outputs, 2 * s_.inner);
  }

  Builder& b_;
  const ExpertShape& s_;
  Value x_, scales_, biases_, weight_, chosen_;
  int64_t slot_ = 0;
};

}  // namespace

Function expert_graph(const ExpertShape& shape) {
  Program program;
  Builder b(program, segment_name(shape));
  b.output("y", ExpertGraph(b, shape).result());
  static_cast<void>(b.finish());  // which looks for the ops that families write alone
  CHECK(program.functions.size() == 1);
  auto primitive = decompose(program, program.functions.front(), {.rows = shape.rows});
  CHECK(primitive && verify(*primitive, program, Level::primitive));
  return std::move(*primitive);
}

std::string segment_name(const ExpertShape& shape) {
  return fmt::format("experts.{}{}", shape.slots, shape.grouped ? ".grouped" : "");
}

}  // namespace onw::openvino
