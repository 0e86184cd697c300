#include "passes/cut.h"

#include <gtest/gtest.h>

#include "graph/ops.h"
#include "graph/text.h"
#include "graph/verifier.h"

namespace onw {
namespace {

// Two layers of which the second reads what the first has left behind: x2 crosses two cuts.
constexpr std::string_view kTwoLayers =
    R"(program p layers=2 hidden=8 vocabulary=9 max_context=8 embedding=e embedding_scale=1
weight w [8,8] f32 matrix
weight s [2] f32 vector
state kv.0 kv layer=0 heads=2 head_dim=4 value_dim=4
state kv.1 kv layer=1 heads=2 head_dim=4 value_dim=4
body {
  %0 = input "x" : f32[S,8]
  %1 = weight "w" : f32[8,8]
  %2 = linear(%0, %1) "L00/q" : f32[S,8]
  %3 = reshape(%2; shape=[S,2,4]) "L00/q_heads" : f32[S,2,4]
  %4 = reshape(%0; shape=[S,2,4]) "L00/k_heads" : f32[S,2,4]
  %5 = kv_write(%4, %4; state="kv.0") "L00/kv_write" : none
  %6 = weight "s" : f32[2]
  %7 = attention(%3, %6; state="kv.0", scale=0.5) "L00/attention" : f32[S,2,4]
  %8 = reshape(%7; shape=[S,8]) "L00/o_rows" : f32[S,8]
  %9 = add(%0, %8) "L00/add" : f32[S,8]
  %10 = reshape(%9; shape=[S,2,4]) "L01/q_heads" : f32[S,2,4]
  %11 = kv_write(%10, %10; state="kv.1") "L01/kv_write" : none
  %12 = attention(%10; state="kv.1", scale=0.5) "L01/attention" : f32[S,2,4]
  %13 = reshape(%12; shape=[S,8]) "L01/o_rows" : f32[S,8]
  %14 = linear(%13, %1) "L01/o" : f32[S,8]
  %15 = add(%9, %14) "L01/add" : f32[S,8]
  return hidden=%15
}
)";

TEST(Cut, ends_segments_before_attention_and_names_what_crosses) {
  const auto program = parse_program(kTwoLayers);
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_TRUE(verify(*program)) << verify(*program).error().message;
  const auto cut = cut_at_host_steps(program->functions[0]);
  ASSERT_TRUE(cut) << cut.error().message;
  ASSERT_EQ(cut->segments.size(), 3U);
  EXPECT_EQ(print(cut->segments[0]), R"(body.0 {
  %0 = input "x" : f32[S,8]
  %1 = weight "w" : f32[8,8]
  %2 = linear(%0, %1) "L00/q" : f32[S,8]
  %3 = reshape(%2; shape=[S,2,4]) "L00/q_heads" : f32[S,2,4]
  %4 = reshape(%0; shape=[S,2,4]) "L00/k_heads" : f32[S,2,4]
  return L00/k_heads=%4, L00/q_heads=%3
}
)");
  EXPECT_EQ(print(cut->segments[1]), R"(body.1 {
  %0 = input "L00/attention" : f32[S,2,4]
  %1 = reshape(%0; shape=[S,8]) "L00/o_rows" : f32[S,8]
  %2 = input "x" : f32[S,8]
  %3 = add(%2, %1) "L00/add" : f32[S,8]
  %4 = reshape(%3; shape=[S,2,4]) "L01/q_heads" : f32[S,2,4]
  return L01/q_heads=%4, L00/add=%3
}
)");
  EXPECT_EQ(print(cut->segments[2]), R"(body.2 {
  %0 = input "L01/attention" : f32[S,2,4]
  %1 = reshape(%0; shape=[S,8]) "L01/o_rows" : f32[S,8]
  %2 = weight "w" : f32[8,8]
  %3 = linear(%1, %2) "L01/o" : f32[S,8]
  %4 = input "L00/add" : f32[S,8]
  %5 = add(%4, %3) "L01/add" : f32[S,8]
  return hidden=%5
}
)");
}

TEST(Cut, says_what_the_host_does_between_them) {
  const auto program = parse_program(kTwoLayers);
  ASSERT_TRUE(program);
  const auto cut = cut_at_host_steps(program->functions[0]);
  ASSERT_TRUE(cut);
  ASSERT_EQ(cut->host.size(), 2U);
  ASSERT_EQ(cut->host[0].size(), 2U);
  EXPECT_EQ(cut->host[0][0].operands, (std::vector<std::string>{"L00/k_heads", "L00/k_heads"}));
  EXPECT_EQ(cut->host[0][0].result, "");
  EXPECT_EQ(cut->host[0][1].operands, (std::vector<std::string>{"L00/q_heads", "s"}));
  EXPECT_EQ(cut->host[0][1].result, "L00/attention");
  EXPECT_EQ(cut->host[1][1].node.attributes.text("state"), "kv.1");
}

// x is the function's own, so behind the first attention its result alone crosses.
TEST(Cut, makes_pieces_with_attention_inside_where_one_value_crosses) {
  const auto program = parse_program(kTwoLayers);
  ASSERT_TRUE(program);
  const auto cut = cut_in_pieces(program->functions[0], 1);
  EXPECT_TRUE(cut.host.empty());
  ASSERT_EQ(cut.segments.size(), 2U);
  EXPECT_EQ(print(cut.segments[1]), R"(body.1 {
  %0 = input "L00/attention" : f32[S,2,4]
  %1 = reshape(%0; shape=[S,8]) "L00/o_rows" : f32[S,8]
  %2 = input "x" : f32[S,8]
  %3 = add(%2, %1) "L00/add" : f32[S,8]
  %4 = reshape(%3; shape=[S,2,4]) "L01/q_heads" : f32[S,2,4]
  %5 = kv_write(%4, %4; state="kv.1") "L01/kv_write" : none
  %6 = attention(%4; state="kv.1", scale=0.5) "L01/attention" : f32[S,2,4]
  %7 = reshape(%6; shape=[S,8]) "L01/o_rows" : f32[S,8]
  %8 = weight "w" : f32[8,8]
  %9 = linear(%7, %8) "L01/o" : f32[S,8]
  %10 = add(%3, %9) "L01/add" : f32[S,8]
  return hidden=%10
}
)");
  EXPECT_EQ(cut.segments[0].outputs.size(), 1U);
  EXPECT_EQ(cut_in_pieces(program->functions[0], 2).segments.size(), 1U);
}

TEST(Cut, a_function_without_effects_is_one_segment) {
  const auto program = parse_program(
      "program p layers=1 hidden=8 vocabulary=9 max_context=8 embedding=e embedding_scale=1\nhead {\n"
      "  %0 = input \"hidden\" : f32[S,8]\n  %1 = scale(%0; by=2.0) \"y\" : f32[S,8]\n  return logits=%1\n}\n");
  ASSERT_TRUE(program) << program.error().message;
  const auto cut = cut_at_host_steps(program->functions[0]);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->segments.size(), 1U);
  EXPECT_TRUE(cut->host.empty());
}

// A delta layer as models/gated_delta writes it, and an MLP of experts beside a shared product.
constexpr std::string_view kHybrid =
    R"(program p layers=1 hidden=8 vocabulary=9 max_context=8 embedding=e embedding_scale=1
weight w [8,8] f32 matrix
weight taps [8,4] f32 vector
weight router [4,8] f32 router
weight gate [4,2,8] f32 expert
weight down [4,8,2] f32 expert
state c conv layer=0 heads=8 kernel=4
state d delta layer=0 heads=2 head_dim=4 value_dim=4 key_heads=2
body {
  %0 = input "x" : f32[S,8]
  %1 = weight "w" : f32[8,8]
  %2 = linear(%0, %1) "L00/in" : f32[S,8]
  %3 = weight "taps" : f32[8,4]
  %4 = conv_update(%2, %3; state="c") "L00/conv" : f32[S,8]
  %5 = activate(%4; activation="silu") "L00/silu" : f32[S,8]
  %6 = reshape(%5; shape=[S,2,4]) "L00/heads" : f32[S,2,4]
  %7 = slice(%0; axis=1, begin=0, end=2) "L00/g" : f32[S,2]
  %8 = gated_delta(%6, %6, %6, %7, %7; state="d") "L00/delta" : f32[S,2,4]
  %9 = reshape(%8; shape=[S,8]) "L00/rows" : f32[S,8]
  %10 = add(%9, %5) "L00/add" : f32[S,8]
  %11 = weight "router" : f32[4,8]
  %12 = linear(%10, %11) "L00/router" : f32[S,4]
  %13 = route(%12; kind="softmax", k=2) "L00/route" : route[S,2]
  %14 = weight "gate" : f32[4,2,8]
  %15 = weight "down" : f32[4,8,2]
  %16 = experts(%10, %13, %14, %14, %15; activation="silu") "L00/experts" : f32[S,8]
  %17 = linear(%10, %1) "L00/shared" : f32[S,8]
  %18 = add(%17, %16) "L00/mlp_add" : f32[S,8]
  return hidden=%18
}
)";

// Graphs of fixed rows hold the states: experts alone are the host's.
TEST(Cut, leaves_states_inside_graphs_of_fixed_rows) {
  const auto program = parse_program(kHybrid);
  ASSERT_TRUE(program) << program.error().message;
  const auto cut = cut_for_fixed_rows(program->functions[0]);
  ASSERT_TRUE(cut) << cut.error().message;
  ASSERT_EQ(cut->segments.size(), 2U);
  ASSERT_EQ(cut->host.size(), 1U);
  std::vector<Op> host;
  for (const HostStep& step : cut->host[0]) host.push_back(step.node.op);
  EXPECT_EQ(host, (std::vector<Op>{Op::route, Op::experts}));
  const std::string text = print(cut->segments[0]);
  for (const char* step : {"L00/conv\"", "L00/delta\"", "L00/delta.v_scale\"", "L00/delta.result_scale\""})
    EXPECT_NE(text.find(step), text.npos) << step << " in " << text;
}

// What lies between the convolution and the delta rule takes no graph; "g" and the shared product need nothing of the
// steps that they are written behind.
TEST(Cut, ends_segments_at_states_and_behind_routers) {
  const auto program = parse_program(kHybrid);
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_TRUE(verify(*program)) << verify(*program).error().message;
  const auto cut = cut_at_host_steps(program->functions[0]);
  ASSERT_TRUE(cut) << cut.error().message;
  ASSERT_EQ(cut->segments.size(), 3U);
  EXPECT_EQ(print(cut->segments[0]), R"(body.0 {
  %0 = input "x" : f32[S,8]
  %1 = weight "w" : f32[8,8]
  %2 = linear(%0, %1) "L00/in" : f32[S,8]
  %3 = slice(%0; axis=1, begin=0, end=2) "L00/g" : f32[S,2]
  return L00/in=%2, L00/g=%3
}
)");
  EXPECT_EQ(print(cut->segments[1]), R"(body.1 {
  %0 = input "L00/delta" : f32[S,2,4]
  %1 = reshape(%0; shape=[S,8]) "L00/rows" : f32[S,8]
  %2 = input "L00/silu" : f32[S,8]
  %3 = add(%1, %2) "L00/add" : f32[S,8]
  %4 = weight "router" : f32[4,8]
  %5 = linear(%3, %4) "L00/router" : f32[S,4]
  %6 = weight "w" : f32[8,8]
  %7 = linear(%3, %6) "L00/shared" : f32[S,8]
  return L00/router=%5, L00/add=%3, L00/shared=%7
}
)");
  EXPECT_EQ(cut->segments[2].nodes.size(), 3U);
  const auto steps = [&](size_t list) {
    std::string text;
    for (const HostStep& s : cut->host[list]) text += s.node.label + (s.crosses ? "* " : " ");
    return text;
  };
  ASSERT_EQ(cut->host.size(), 2U);
  EXPECT_EQ(steps(0), "L00/conv L00/silu* L00/heads L00/delta* ");
  EXPECT_EQ(steps(1), "L00/route L00/experts* ");
  EXPECT_EQ(cut->host[1][1].operands, (std::vector<std::string>{"L00/add", "L00/route", "gate", "gate", "down"}));
  EXPECT_EQ(to_string(cut->host[1][1].operand_types[1]), "route[S,2]");
}

TEST(Cut, says_where_no_graph_stands_before_or_behind_a_step_of_the_hosts) {
  const auto with = [](std::string_view between, std::string_view result) {
    return fmt::format(
        "program p layers=1 hidden=8 vocabulary=9 max_context=8 embedding=e embedding_scale=1\nweight w [8,4] f32 "
        "vector\nstate c conv layer=0 heads=8 kernel=4\nbody {{\n  %0 = input \"x\" : f32[S,8]\n"
        "  %1 = weight \"w\" : f32[8,4]\n{}  %{} = conv_update(%0, %1; state=\"c\") \"L00/conv\" : f32[S,8]\n"
        "  return hidden=%{}\n}}\n",
        between, result, result);
  };
  for (const auto& [text, side] : {std::pair(with("", "2"), "before"),
                                   std::pair(with("  %2 = scale(%0; by=2.0) \"y\" : f32[S,8]\n", "3"), "behind")}) {
    const auto program = parse_program(text);
    ASSERT_TRUE(program) << program.error().message;
    const auto cut = cut_at_host_steps(program->functions[0]);
    ASSERT_FALSE(cut);
    EXPECT_EQ(cut.error().code, Code::unsupported);
    EXPECT_EQ(cut.error().message, fmt::format("body: L00/conv: no graph stands {} this step of the host's", side));
  }
}

}  // namespace
}  // namespace onw
