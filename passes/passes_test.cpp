#include <gtest/gtest.h>

#include <random>

#include "graph/builder.h"
#include "graph/ops.h"
#include "graph/text.h"
#include "graph/verifier.h"
#include "passes/bind_formats.h"
#include "passes/fuse.h"
#include "passes/memory_plan.h"
#include "passes/merge_linears.h"
#include "passes/quantise.h"

namespace onw {
namespace {

Program parse(std::string_view text) {
  auto p = parse_program(text);
  EXPECT_TRUE(p) << p.error().message;
  EXPECT_TRUE(verify(*p)) << verify(*p).error().message;
  return std::move(*p);
}

std::string body(const Program& p) {
  const auto ok = verify(p);
  EXPECT_TRUE(ok) << ok.error().message;
  return print(p.functions[0]);
}

constexpr std::string_view kHead =
    "program p layers=1 hidden=64 vocabulary=9 max_context=8 embedding=e embedding_scale=1\n";

TEST(QuantiseActivations, one_quantize_serves_all_readers_with_the_smallest_group) {
  const Program p = parse(std::string(kHead) + R"(weight a [16,128] q4g128 matrix
weight b [16,128] q4g32 matrix
weight c [16,128] f16 matrix
body {
  %0 = input "x" : f32[S,128]
  %1 = weight "a" : f32[16,128]
  %2 = linear(%0, %1) "L00/a" : f32[S,16]
  %3 = weight "b" : f32[16,128]
  %4 = linear(%0, %3) "L00/b" : f32[S,16]
  %5 = weight "c" : f32[16,128]
  %6 = linear(%0, %5) "L00/c" : f32[S,16]
  return a=%2, b=%4, c=%6
}
)");
  EXPECT_EQ(body(quantise_activations(p, "int8")), R"(body {
  %0 = input "x" : f32[S,128]
  %1 = quantize(%0; group=32) "x.quantize" : q8g32[S,128]
  %2 = weight "a" : f32[16,128]
  %3 = linear(%1, %2) "L00/a" : f32[S,16]
  %4 = weight "b" : f32[16,128]
  %5 = linear(%1, %4) "L00/b" : f32[S,16]
  %6 = weight "c" : f32[16,128]
  %7 = linear(%0, %6) "L00/c" : f32[S,16]
  return a=%3, b=%5, c=%7
}
)");
}

TEST(QuantiseActivations, a_per_channel_weight_asks_for_the_largest_group_of_its_width_and_the_cache_gets_its_format) {
  const Program p = parse(std::string(kHead) + R"(weight a [16,192] q8c matrix
state kv.0 kv layer=0 heads=1 head_dim=16 value_dim=16
body {
  %0 = input "x" : f32[S,192]
  %1 = weight "a" : f32[16,192]
  %2 = linear(%0, %1) "L00/a" : f32[S,16]
  %3 = reshape(%2; shape=[S,1,16]) "L00/heads" : f32[S,1,16]
  %4 = kv_write(%3, %3; state="kv.0") "L00/write" : none
  %5 = attention(%3; state="kv.0", scale=1.0) "L00/attention" : f32[S,1,16]
  return y=%5
}
)");
  const std::string text = body(quantise_activations(p, "int8"));
  EXPECT_NE(text.find("quantize(%0; group=64)"), std::string::npos) << text;
  EXPECT_NE(text.find("kv_write(%4, %4; state=\"kv.0\", kv=\"int8\")"), std::string::npos) << text;
  EXPECT_NE(text.find("scale=1.0, kv=\"int8\")"), std::string::npos) << text;
}

constexpr std::string_view kQkv = R"(weight q [32,64] q4g64 matrix group=L.qkv
weight k [16,64] q4g64 matrix group=L.qkv
weight q.bias [32] f32 vector
weight k.bias [16] f32 vector
body {
  %0 = input "x" : f32[S,64]
  %1 = weight "q" : f32[32,64]
  %2 = weight "q.bias" : f32[32]
  %3 = linear(%0, %1, %2) "L00/q_proj" : f32[S,32]
  %4 = weight "k" : f32[16,64]
  %5 = weight "k.bias" : f32[16]
  %6 = linear(%0, %4, %5) "L00/k_proj" : f32[S,16]
  return q=%3, k=%6
}
)";

TEST(MergeLinears, side_by_side_weights_become_one_product_and_slices) {
  const Program p = parse(std::string(kHead) + std::string(kQkv));
  const Program merged = merge_linears(p, [](const auto&) { return true; });
  EXPECT_EQ(body(merged), R"(body {
  %0 = input "x" : f32[S,64]
  %1 = weight "L.qkv" : f32[48,64]
  %2 = weight "L.qkv.bias" : f32[48]
  %3 = linear(%0, %1, %2) "L00/q_proj+k_proj" : f32[S,48]
  %4 = slice(%3; axis=1, begin=0, end=32) "L00/q_proj" : f32[S,32]
  %5 = slice(%3; axis=1, begin=32, end=48) "L00/k_proj" : f32[S,16]
  return q=%4, k=%5
}
)");
  EXPECT_EQ(merged.weight("L.qkv")->parts, (std::vector<std::string>{"q", "k"}));
  EXPECT_EQ(merged.weight("L.qkv.bias")->parts, (std::vector<std::string>{"q.bias", "k.bias"}));
}

TEST(MergeLinears, what_is_apart_or_of_two_formats_or_no_whole_tiles_stays_as_it_is) {
  const std::string text = std::string(kHead) + std::string(kQkv);
  const Program p = parse(text);
  EXPECT_EQ(body(merge_linears(p, [](const auto&) { return false; })), body(p));
  Program formats = p;
  formats.weights[1].format = WeightFormat::q8g64;
  EXPECT_EQ(body(merge_linears(formats, [](const auto&) { return true; })), body(p));
  std::string odd = text;
  for (const auto& [from, to] : {std::pair{"[32", "[24"}, std::pair{"S,32", "S,24"}})
    for (size_t at; (at = odd.find(from)) != std::string::npos;) odd.replace(at, strlen(from), to);
  const Program no_tiles = parse(odd);
  EXPECT_EQ(body(merge_linears(no_tiles, [](const auto&) { return true; })), body(no_tiles));
}

TEST(Fuse, norm_and_quantise_gate_and_quantise_product_and_residual) {
  const Program p = parse(std::string(kHead) + R"(weight n [64] f32 vector
weight g [128,64] q4g64 matrix
weight d [64,64] q4g64 matrix
body {
  %0 = input "x" : f32[S,64]
  %1 = weight "n" : f32[64]
  %2 = rms_norm(%0, %1; eps=1e-05) "L00/norm" : f32[S,64]
  %3 = quantize(%2; group=64) "L00/norm.quantize" : q8g64[S,64]
  %4 = weight "g" : f32[128,64]
  %5 = linear(%3, %4) "L00/gate_up" : f32[S,128]
  %6 = slice(%5; axis=1, begin=0, end=64) "L00/gate" : f32[S,64]
  %7 = slice(%5; axis=1, begin=64, end=128) "L00/up" : f32[S,64]
  %8 = gated(%6, %7; activation="silu") "L00/gated" : f32[S,64]
  %9 = quantize(%8; group=64) "L00/gated.quantize" : q8g64[S,64]
  %10 = weight "d" : f32[64,64]
  %11 = linear(%9, %10) "L00/down" : f32[S,64]
  %12 = add(%0, %11) "L00/add" : f32[S,64]
  return y=%12
}
)");
  EXPECT_EQ(body(fuse(p)), R"(body {
  %0 = input "x" : f32[S,64]
  %1 = weight "n" : f32[64]
  %2 = rms_norm_quantize(%0, %1; eps=1e-05, group=64) "L00/norm" : q8g64[S,64]
  %3 = weight "g" : f32[128,64]
  %4 = linear_gated_quantize(%2, %3; activation="silu", group=64) "L00/gated" : q8g64[S,64]
  %5 = weight "d" : f32[64,64]
  %6 = linear_add(%0, %4, %5) "L00/add" : f32[S,64]
  return y=%6
}
)");
}

TEST(Fuse, what_others_read_stays_a_step_of_its_own) {
  const std::string text = std::string(kHead) + R"(body {
  %0 = input "x" : f32[S,64]
  %1 = rms_norm(%0; eps=1e-05) "L00/norm" : f32[S,64]
  %2 = quantize(%1; group=64) "L00/quantize" : q8g64[S,64]
  return y=%1, q=%2
}
)";
  const Program p = parse(text);
  EXPECT_EQ(body(fuse(p)), body(p));
}

TEST(Fuse, gate_and_up_that_are_read_elsewhere_or_not_halves_stay_a_product_of_their_own) {
  const std::string text = std::string(kHead) + R"(weight g [128,64] q4g64 matrix
body {
  %0 = input "x" : f32[S,64]
  %1 = weight "g" : f32[128,64]
  %2 = quantize(%0; group=64) "L00/x" : q8g64[S,64]
  %3 = linear(%2, %1) "L00/gate_up" : f32[S,128]
  %4 = slice(%3; axis=1, begin=0, end=64) "L00/gate" : f32[S,64]
  %5 = slice(%3; axis=1, begin=64, end=128) "L00/up" : f32[S,64]
  %6 = gated_quantize(%4, %5; activation="silu", group=64) "L00/gated" : q8g64[S,64]
  return y=%6, q=%2
}
)";
  EXPECT_NE(body(fuse(parse(text))), body(parse(text)));
  for (const auto& [from, to] :
       {std::pair{"gated_quantize(%4, %5", "gated_quantize(%5, %4"}, std::pair{"begin=64, end=128", "begin=32, end=96"},
        std::pair{"return y=%6", "return y=%6, z=%3"}, std::pair{"return y=%6", "return y=%6, z=%4"},
        std::pair{"linear(%2", "linear(%0"}}) {
    std::string other = text;
    other.replace(other.find(from), strlen(from), to);
    const Program p = parse(other);
    EXPECT_EQ(body(fuse(p)), body(p)) << to;
  }
}

TEST(BindFormats, names_the_weight_that_is_missing) {
  Program p = parse(std::string(kHead) + std::string(kQkv));
  const auto bound = bind_formats(p, [](std::string_view name) -> std::optional<WeightFormat> {
    if (name == "k") return std::nullopt;
    return WeightFormat::q8c;
  });
  ASSERT_FALSE(bound);
  EXPECT_NE(bound.error().message.find("'k'"), std::string::npos);
}

MemoryRules rules() {
  return {.bytes = [](const Type& t) { return t.row_elements() * 4 * 3; },
          .in_place = [](const Node& n) { return n.op == Op::scale; },
          .external = [](const Node& n) { return n.op == Op::input; }};
}

TEST(MemoryPlan, views_share_in_place_ops_write_over_and_the_dead_give_room) {
  const Program p = parse(std::string(kHead) + R"(body {
  %0 = input "x" : f32[S,64]
  %1 = add(%0, %0) "a" : f32[S,64]
  %2 = slice(%1; axis=1, begin=0, end=16) "left" : f32[S,16]
  %3 = slice(%1; axis=1, begin=16, end=64) "right" : f32[S,48]
  %4 = scale(%2; by=2.0) "in_place" : f32[S,16]
  %5 = scale(%3; by=2.0) "in_place_too" : f32[S,48]
  %6 = add(%4, %4) "b" : f32[S,16]
  %7 = add(%5, %5) "c" : f32[S,48]
  %8 = add(%7, %7) "d" : f32[S,48]
  return y=%8, z=%6
}
)");
  const MemoryPlan plan = plan_memory(p.functions[0], rules());
  EXPECT_EQ(plan.places[0].offset, -1);
  for (const int i : {2, 3, 4, 5}) EXPECT_EQ(plan.places[i].owner.id, 1) << i;
  EXPECT_EQ(plan.places[5].column, 16);
  EXPECT_EQ(plan.places[8].owner.id, 8);
  EXPECT_LT(plan.arena_bytes, plan.sum_bytes);
}

TEST(MemoryPlan, does_not_write_over_what_is_read_later) {
  const Program p = parse(std::string(kHead) + R"(body {
  %0 = input "x" : f32[S,64]
  %1 = add(%0, %0) "a" : f32[S,64]
  %2 = slice(%1; axis=1, begin=0, end=32) "left" : f32[S,32]
  %3 = scale(%2; by=2.0) "scaled" : f32[S,32]
  %4 = slice(%1; axis=1, begin=16, end=48) "middle" : f32[S,32]
  %5 = add(%3, %4) "sum" : f32[S,32]
  return y=%5
}
)");
  EXPECT_EQ(plan_memory(p.functions[0], rules()).places[3].owner.id, 3);
}

TEST(MemoryPlan, no_two_values_that_live_at_once_overlap_on_random_graphs) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Program p{.family = "random", .hidden = 64};
    Builder b(p, "body");
    std::vector<Value> values = {b.add("first", b.input("x", {DType::f32, {kRows, 64}}), Value{0})};
    for (int i = 0; i < 30; ++i) {
      const Value v = values[random() % values.size()], w = values[random() % values.size()];
      const int64_t n = b.type(v).last();
      if (random() % 4 == 0 && n > 2)
        values.push_back(b.slice("slice", v, 1, n / 4, n / 2));
      else if (random() % 2 == 0)
        values.push_back(b.scale("scale", v, 2.5));
      else if (b.type(v) == b.type(w))
        values.push_back(b.add("add", v, w));
    }
    b.output("y", values.back());
    ASSERT_TRUE(b.finish());
    const Function& f = p.functions[0];
    const MemoryPlan plan = plan_memory(f, rules());
    for (size_t i = 0; i < f.nodes.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const Place &a = plan.places[i], &c = plan.places[j];
        if (a.offset < 0 || c.offset < 0 || a.owner == c.owner) continue;
        const bool together = a.first_use <= c.last_use && c.first_use <= a.last_use;
        const bool apart = a.offset + a.bytes <= c.offset || c.offset + c.bytes <= a.offset;
        EXPECT_TRUE(!together || apart || plan.places[static_cast<size_t>(a.owner.id)].first_use > c.last_use) << seed;
      }
    }
  }
}

}  // namespace
}  // namespace onw
