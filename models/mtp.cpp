#include "models/mtp.h"

#include "graph/ops.h"

namespace onw {
namespace {

// One more layer, of full attention, with experts where the model has some.
void append_layer(DecoderConfig& c) {
  if (!c.mixers.empty()) c.mixers.push_back(Mixer::attention);
  if (!c.windows.empty()) c.windows.push_back(0);
  if (!c.layer_ropes.empty()) c.layer_ropes.push_back(c.layer_ropes.back());
  if (!c.expert_layers.empty()) c.expert_layers.push_back(c.experts.count > 0);
}

class MtpLayer {
 public:
  MtpLayer(Program& p, const DecoderConfig& c, int layer) : b_(p, "body"), c_(c), layer_(layer) {}

  Result<void> add(BlockFunction block) {
    const Value x = begin_body(b_, c_);
    const Value carried = b_.input("carried", {DType::f32, {kRows, c_.hidden}});
    const Value token = norm("embed_norm", x, "mtp.pre_fc_norm_embedding.weight", "enorm");
    const Value state = norm("hidden_norm", carried, "mtp.pre_fc_norm_hidden.weight", "hnorm");
    const Value both = b_.node(Op::concat, "both", {token, state}, {{"axis", int64_t{1}}});
    const Value fc = b_.weight({.name = name("mtp.fc"),
                                .shape = {c_.hidden, 2 * c_.hidden},
                                .hugging_face = {{"mtp.fc.weight"}},
                                .gguf = {{gguf("eh_proj")}}});
    const Value u = block(b_, c_, layer_, b_.linear("fc", both, fc));
    b_.output("hidden", norm("norm", u, "mtp.norm.weight", "shared_head_norm"));
    return b_.finish();
  }

 private:
  std::string name(std::string_view what) const { return fmt::format("layers.{}.{}", layer_, what); }
  std::string gguf(std::string_view what) const { return fmt::format("blk.{}.nextn.{}.weight", layer_, what); }

  // The last one may be the model's own in GGUF files.
  Value norm(std::string_view step, Value x, std::string_view hf, std::string_view in_gguf) {
    const Value w = b_.weight(
        {.name = name(fmt::format("mtp.{}", step)),
         .shape = {c_.hidden},
         .role = WeightRole::vector,
         .hugging_face = {{std::string(hf)}, c_.norm_fold},
         .gguf = {in_gguf == "shared_head_norm" ? std::vector<std::string>{gguf(in_gguf), "output_norm.weight"}
                                                : std::vector<std::string>{gguf(in_gguf)}}});
    return b_.rms_norm(step, x, w, c_.norm_eps);
  }

  Builder b_;
  const DecoderConfig& c_;
  int layer_;
};

// The published names of the layer's own weights, which the block gave those of a layer of the model.
void name_as_published(Program& p, int layer) {
  const std::string ours = fmt::format("layers.{}.", layer);
  for (WeightDecl& w : p.weights)
    for (std::string& n : w.hugging_face.names)
      if (n.starts_with(ours)) n = "mtp.layers.0." + n.substr(ours.size());
}

Result<void> add_short_head(Program& p, const DecoderConfig& c, int64_t vocabulary) {
  Builder b(p, "short_head");
  const Value hidden = b.input("hidden", {DType::f32, {kRows, c.hidden}});
  const Value w =
      b.weight({.name = std::string(kShortHead), .shape = {vocabulary, c.hidden}, .role = WeightRole::head});
  Value logits = b.scale("logits_scaled", b.linear("head", hidden, w), c.logits_scale);
  if (c.logits_soft_cap > 0) logits = b.soft_cap("logits_capped", logits, c.logits_soft_cap);
  b.output("logits", logits);
  return b.finish();
}

}  // namespace

Result<Program> mtp_program(DecoderConfig c, BlockFunction block, int64_t short_vocabulary) {
  CHECK(short_vocabulary % 16 == 0 && short_vocabulary < c.vocabulary);
  const auto layer = static_cast<int>(c.layers);
  append_layer(c);
  Program p = empty_program(c);
  p.layers = 1;
  RETURN_IF_ERROR(MtpLayer(p, c, layer).add(block));
  name_as_published(p, layer);
  RETURN_IF_ERROR(add_head(p, c));
  if (short_vocabulary > 0) RETURN_IF_ERROR(add_short_head(p, c, short_vocabulary));
  return p;
}

}  // namespace onw
