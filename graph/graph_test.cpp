#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/ops.h"
#include "graph/shape_rules.h"
#include "graph/text.h"
#include "graph/verifier.h"

namespace onw {
namespace {

// x -> norm -> linear, the smallest graph with a weight, an attribute and an output.
Program small_program() {
  Program p{.family = "small", .layers = 1, .hidden = 8, .vocabulary = 10, .max_context = 16};
  Builder b(p, "body");
  const Value x = b.input("x", {DType::f32, {kRows, 8}});
  const Scope scope(b, 0);
  const Value w = b.weight({.name = "w", .shape = {4, 8}});
  b.output("y", b.linear("project", b.rms_norm("norm", x, std::nullopt, 1e-5), w));
  EXPECT_TRUE(b.finish());
  return p;
}

TEST(GraphText, prints_what_a_person_can_read) {
  EXPECT_EQ(print(small_program().functions[0]),
            "body {\n"
            "  %0 = input \"x\" : f32[S,8]\n"
            "  %1 = weight \"w\" : f32[4,8]\n"
            "  %2 = rms_norm(%0; eps=1e-05) \"L00/norm\" : f32[S,8]\n"
            "  %3 = linear(%2, %1) \"L00/project\" : f32[S,4]\n"
            "  return y=%3\n"
            "}\n");
}

TEST(GraphText, reads_back_what_it_prints) {
  const std::string text = print(small_program());
  const auto again = parse_program(text);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(print(*again), text);
}

TEST(GraphText, names_the_line_that_it_cannot_read) {
  for (const char* broken : {"body {\n  %0 = inptu \"x\" : f32[S,8]\n}\n", "body {\n  %1 = input \"x\" : f32[S,8]\n}\n",
                             "body {\n  %0 = input \"x\" : f99[S,8]\n}\n", "body {\n", "weight w [4,8] q5 matrix\n"}) {
    const auto p = parse_program(broken);
    ASSERT_FALSE(p) << broken;
    EXPECT_EQ(p.error().code, Code::bad_format);
  }
}

TEST(GraphText, any_cut_or_changed_text_is_an_error_or_a_graph_but_never_a_crash) {
  const std::string text = print(small_program());
  for (size_t n = 0; n < text.size(); ++n) {
    (void)parse_program(text.substr(0, n));
    for (const char c : {'%', '(', '"', '\n', '9', '-'}) {
      std::string changed = text;
      changed[n] = c;
      (void)parse_program(changed);
    }
  }
}

TEST(Builder, keeps_the_first_mistake_with_the_name_of_its_step) {
  Program p{.family = "small", .hidden = 8};
  Builder b(p, "body");
  const Value x = b.input("x", {DType::f32, {kRows, 8}});
  Scope scope(b, 7);
  const Value w = b.weight({.name = "w", .shape = {4, 9}});
  const Value y = b.linear("q_proj", x, w);
  b.output("y", b.add("later", y, y));
  const auto done = b.finish();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "body: L07/q_proj: linear: x has 8 inputs, w is f32[4,9]");
}

// npu-086
TEST(Verifier, refuses_wrong_types_orders_levels_and_names) {
  const Program good = small_program();
  EXPECT_TRUE(verify(good));
  const auto broken = [&](auto change) {
    Program p = good;
    change(p.functions[0]);
    return !verify(p);
  };
  EXPECT_TRUE(broken([](Function& f) { f.nodes[3].type.shape[1] = 5; }));        // not what the shape rule gives
  EXPECT_TRUE(broken([](Function& f) { f.nodes[2].inputs[0] = Value{3}; }));     // used before it is made
  EXPECT_TRUE(broken([](Function& f) { f.nodes[1].label = "unknown"; }));        // an undeclared weight
  EXPECT_TRUE(broken([](Function& f) { f.nodes[2].type.dtype = DType::f16; }));  // CASES: npu-086
  EXPECT_TRUE(broken([](Function& f) { f.outputs[0].value = Value{9}; }));
  EXPECT_TRUE(broken([](Function& f) { f.nodes[2].op = Op::sqrt; }));  // a primitive in a coarse graph
}

TEST(ShapeRules, every_op_has_one_and_refuses_too_few_inputs) {
  for (int i = 0; i <= static_cast<int>(Op::softmax); ++i) {
    const auto o = static_cast<Op>(i);
    if (info(o).most_inputs == 0) continue;
    EXPECT_FALSE(result_type(o, {}, {})) << name(o);
    EXPECT_EQ(op(name(o)), o);
  }
}

TEST(Verifier, holds_recurrent_ops_to_their_states) {
  const auto program = [](StateDecl conv) {
    Program p{.family = "small", .hidden = 8};
    Builder b(p, "body");
    const Value x = b.input("x", {DType::f32, {kRows, 8}});
    b.state(conv);
    const Value w = b.weight({.name = "w", .shape = {8, 3}, .role = WeightRole::vector});
    b.output("y", b.node(Op::conv_update, "conv", {x, w}, {{"state", std::string("s")}}));
    return b.finish();
  };
  EXPECT_TRUE(program({.name = "s", .kind = StateKind::conv, .heads = 8, .kernel = 3}));
  EXPECT_FALSE(program({.name = "s", .kind = StateKind::conv, .heads = 9, .kernel = 3}));
  EXPECT_FALSE(program({.name = "s", .kind = StateKind::conv, .heads = 8, .kernel = 4}));
  EXPECT_FALSE(program({.name = "s", .kind = StateKind::kv, .heads = 8, .kernel = 3}));
}

TEST(Program, counts_states_of_a_sort) {
  Program p;
  for (const StateKind kind : {StateKind::conv, StateKind::kv, StateKind::delta, StateKind::kv})
    p.states.push_back({.kind = kind});
  EXPECT_EQ(p.place(0), 0);
  EXPECT_EQ(p.place(1), 0);
  EXPECT_EQ(p.place(2), 1);
  EXPECT_EQ(p.place(3), 1);
}

TEST(ShapeRules, of_the_ops_of_later_families) {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s), 0}; };
  const std::vector<Type> delta = {f32({kRows, 2, 8}), f32({kRows, 2, 8}), f32({kRows, 6, 12}), f32({kRows, 6}),
                                   f32({kRows, 6})};
  EXPECT_EQ(*result_type(Op::gated_delta, delta, {{"state", std::string("s")}}), f32({kRows, 6, 12}));
  const std::vector<Type> conv = {f32({kRows, 48}), f32({48, 3})};
  EXPECT_EQ(*result_type(Op::conv_update, conv, {{"state", std::string("c")}}), f32({kRows, 48}));
  EXPECT_FALSE(result_type(Op::hadamard, std::vector{f32({kRows, 48}), f32({48})}, {{"block", int64_t{32}}}));
  EXPECT_TRUE(result_type(Op::hadamard, std::vector{f32({kRows, 48}), f32({48})}, {{"block", int64_t{16}}}));
}

TEST(ShapeRules, of_mixtures_of_experts_name_what_does_not_fit) {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s), 0}; };
  const auto says = [](Op op, const std::vector<Type>& in, const Attributes& a) {
    const auto type = result_type(op, in, a);
    return type ? to_string(*type) : type.error().message;
  };
  const Attributes three = {{"kind", std::string("softmax")}, {"k", int64_t{3}}};
  const std::vector<Type> logits = {f32({kRows, 8})};
  EXPECT_EQ(says(Op::route, logits, three), "route[S,3]");
  EXPECT_EQ(says(Op::route, logits, {{"kind", std::string("softmax")}, {"k", int64_t{9}}}),
            "route: k is 9, 1..8 expected");
  EXPECT_NE(says(Op::route, logits, {{"kind", std::string("argmax")}, {"k", int64_t{3}}}).find("kind 'argmax'"),
            std::string::npos);
  EXPECT_NE(says(Op::route, {f32({kRows, 1025})}, three).find("at most 1024"), std::string::npos);

  const Attributes silu = {{"activation", std::string("silu")}};
  const std::vector<Type> moe = {f32({kRows, 48}), Type{DType::route, {kRows, 3}, 0}, f32({8, 20, 48}),
                                 f32({8, 20, 48}), f32({8, 48, 20})};
  EXPECT_EQ(says(Op::experts, moe, silu), "f32[S,48]");
  EXPECT_NE(says(Op::experts, moe, {}).find("activation ''"), std::string::npos);
  auto other = moe;
  other[4] = f32({8, 48, 24});
  EXPECT_NE(says(Op::experts, other, silu).find("do not fit"), std::string::npos);
  other = moe;
  for (const Shape& bias : {Shape{8, 20}, Shape{8, 20}, Shape{8, 48}}) other.push_back(f32(bias));
  EXPECT_EQ(says(Op::experts, other, silu), "f32[S,48]");
  other.back() = f32({8, 20});
  EXPECT_NE(says(Op::experts, other, silu).find("a bias is f32[8,20], [8,48] expected"), std::string::npos);
  other.pop_back();
  EXPECT_NE(says(Op::experts, other, silu).find("a bias each"), std::string::npos);
  other = moe;
  other[1].shape[1] = 9;
  EXPECT_NE(says(Op::experts, other, silu).find("a row takes 9 of 8 experts"), std::string::npos);
}

TEST(Type, round_trips_as_text) {
  for (const char* text : {"f32[S,48]", "q8g64[S,576]", "none", "route[S,3]", "i32[S]", "f32[]", "bool[2,1,3]"})
    EXPECT_EQ(to_string(*parse_type(text)), text);
  for (const char* text : {"", "f32", "f32[", "f32[a]", "q8gx[S,1]", "f32[-2]"}) EXPECT_FALSE(parse_type(text)) << text;
}

}  // namespace
}  // namespace onw
