#include "models/experts.h"

#include <nlohmann/json.hpp>

#include "graph/json.h"
#include "graph/ops.h"
#include "graph/shape_rules.h"

namespace onw {
namespace {

WeightSource in_layer(WeightSource source, const std::string& prefix) {
  for (std::string& name : source.names) name = prefix + name;
  return source;
}

}  // namespace

Result<Experts> read_experts(const Config& config, std::string_view count_key, std::string_view used_key,
                             std::string_view width_key) {
  Experts e;
  const std::pair<std::string_view, int64_t*> keys[] = {
      {count_key, &e.count}, {used_key, &e.used}, {width_key, &e.intermediate}};
  for (const auto& [key, field] : keys) {
    const auto n = config.dimension(key);
    RETURN_IF_ERROR(n);
    *field = *n;
  }
  if (e.count > kMostExperts)
    return error(Code::bad_format, "config.json: '{}' is {}, expected 1 to {}", count_key, e.count, kMostExperts);
  if (e.used > e.count)
    return error(Code::bad_format,
                 "config.json: '{}' is {}, but '{}' is {}: a token cannot take more experts than there are", used_key,
                 e.used, count_key, e.count);
  if (e.intermediate > 1 << 22)
    return error(Code::bad_format, "config.json: '{}' is {}, expected at most {}", width_key, e.intermediate, 1 << 22);
  return e;
}

ExpertNames stacked_or_single(const Experts& experts, const std::string& prefix,
                              const std::array<std::string_view, 3>& single) {
  const std::string fused = prefix + "gate_up_proj", gguf = "ffn_gate_up_exps.weight";
  const auto one = [&](size_t i) { return fmt::format("{}{{e}}.{}.weight", prefix, single[i]); };
  ExpertNames names = {.hugging_face = {.gate = {{one(0), fused}},
                                        .up = {{one(1), fused}, Fold::none, experts.intermediate},
                                        .down = {{one(2), prefix + "down_proj"}}}};
  names.gguf.gate.names.push_back(gguf);
  names.gguf.up = {{names.gguf.up.names.front(), gguf}, Fold::none, experts.intermediate};
  return names;
}

Json with_mlp_width(const Json& metadata, std::string_view arch) {
  const std::string width = fmt::format("{}.feed_forward_length", arch);
  const std::string experts = fmt::format("{}.expert_feed_forward_length", arch);
  Json m = metadata;
  if (!m.contains(width) && m.contains(experts)) m[width] = m[experts];
  return m;
}

Result<void> experts_from_gguf(const Json& metadata, std::string_view arch, const char* count_key,
                               const char* width_key, Json& c) {
  for (const auto& [from, to] :
       {std::pair{"expert_count", count_key}, std::pair{"expert_used_count", "num_experts_per_tok"},
        std::pair{"expert_feed_forward_length", width_key}}) {
    const std::string key = fmt::format("{}.{}", arch, from);
    if (!metadata.contains(key)) return error(Code::bad_format, "the GGUF file has no '{}'", key);
    const auto n = find_int(metadata, key);
    if (!n || *n < 1)
      return error(Code::bad_format, "the GGUF file's '{}' is {}, expected a whole number from 1 on", key,
                   dump_json(metadata[key], -1).substr(0, 40));
    c[to] = *n;
  }
  const auto count = find_int(c, count_key), used = find_int(c, "num_experts_per_tok");
  if (*count > kMostExperts)
    return error(Code::bad_format, "the GGUF file's '{}.expert_count' is {}, expected 1 to {}", arch, *count,
                 kMostExperts);
  if (*used > *count)
    return error(Code::bad_format,
                 "the GGUF file's '{0}.expert_used_count' is {1}, but '{0}.expert_count' is {2}: a token cannot take "
                 "more experts than there are",
                 arch, *used, *count);
  return {};
}

Value routed_experts(Builder& b, const Experts& experts, const ExpertNames& names, int layer, Value h,
                     std::string_view activation) {
  const std::string ours = fmt::format("layers.{}.", layer), gguf = fmt::format("blk.{}.", layer);
  const int64_t hidden = b.type(h).last(), width = experts.intermediate;
  const auto weight = [&](std::string name, Shape shape, WeightRole role, const WeightSource& hf,
                          const WeightSource& g) {
    return b.weight({.name = ours + name,
                     .shape = std::move(shape),
                     .role = role,
                     .hugging_face = in_layer(hf, ours),
                     .gguf = in_layer(g, gguf),
                     .group = role == WeightRole::expert ? ours + "experts" : ""});
  };
  const auto stack = [&](std::string_view part, Shape shape, const WeightSource& hf, const WeightSource& g) {
    shape.insert(shape.begin(), experts.count);
    return weight(fmt::format("experts.{}", part), std::move(shape), WeightRole::expert, hf, g);
  };
  const Value router =
      weight("router", {experts.count, hidden}, WeightRole::router, {names.router}, {names.gguf_router});
  Value logits;
  if (experts.biases)
    logits = b.linear(
        "router", h, router,
        weight("router.bias", {experts.count}, WeightRole::vector, {names.router_bias}, {names.gguf_router_bias}));
  else
    logits = b.linear("router", h, router);
  Attributes choice = {{"kind", experts.kind}, {"k", experts.used}};
  if (experts.renormalise) choice.set("renormalise", int64_t{1});
  if (experts.eps != 0) choice.set("eps", experts.eps);
  if (experts.scale != 1) choice.set("scale", experts.scale);
  std::vector<Value> scored = {logits};
  if (experts.choice_bias)
    scored.push_back(weight("router.choice_bias", {experts.count}, WeightRole::vector, {names.choice_bias},
                            {names.gguf_choice_bias}));
  const ExpertSources &hf = names.hugging_face, &g = names.gguf;
  std::vector<Value> inputs = {
      h, b.node(Op::route, "route", scored, choice), stack("gate", {width, hidden}, hf.gate, g.gate),
      stack("up", {width, hidden}, hf.up, g.up), stack("down", {hidden, width}, hf.down, g.down)};
  if (experts.biases)
    for (const Value bias :
         {stack("gate.bias", {width}, hf.gate_bias, g.gate_bias), stack("up.bias", {width}, hf.up_bias, g.up_bias),
          stack("down.bias", {hidden}, hf.down_bias, g.down_bias)})
      inputs.push_back(bias);
  Attributes a = {{"activation", std::string(activation)}};
  if (experts.limit != 0) a.set("limit", experts.limit);
  if (experts.alpha != 0) a.set("alpha", experts.alpha);
  return b.node(Op::experts, "experts", inputs, a);
}

}  // namespace onw
