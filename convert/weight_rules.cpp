#include "convert/weight_rules.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "convert/equalise_keys.h"
#include "convert/read_rows.h"
#include "models/residual.h"

namespace onw {
namespace {

constexpr int64_t kSlabValues = 1 << 20;

// "layers.3.attn" and "k.bias" of "layers.3.attn.k.bias"; empty where it is none of q and k's weights.
struct AttentionWeight {
  std::string attention, part;
};
AttentionWeight attention_weight(const std::string& name) {
  constexpr std::string_view kInside = ".attn.";
  constexpr std::array<std::string_view, 6> kParts = {"q", "k", "q.bias", "k.bias", "q_norm", "k_norm"};
  const size_t at = name.find(kInside);
  if (at == name.npos) return {};
  const std::string part = name.substr(at + kInside.size());
  if (std::ranges::find(kParts, part) == kParts.end()) return {};
  return {name.substr(0, at + kInside.size() - 1), part};
}

// Rows of one head, or the elements of a norm, by RoPE pair.
std::vector<double> pairs(std::span<const double> sizes) {
  const size_t half = sizes.size() / 2;
  std::vector<double> out(half);
  for (size_t i = 0; i < half; ++i) out[i] = std::hypot(sizes[i], sizes[i + half]);
  return out;
}

// Whether the whole head turns, in pairs (i, i + d/2).
bool turns_whole(const Program& program, int64_t head_dim) {
  return head_dim > 0 && head_dim % 2 == 0 && std::ranges::all_of(program.rope_tables, [&](const RopeTable& table) {
           return 2 * static_cast<int64_t>(table.inv_freq.size()) == head_dim;
         });
}

// False where some layers read the cache of others: those keys answer to more queries than their own.
bool every_query_has_its_keys(const Program& program) {
  return std::ranges::all_of(program.weights, [&](const WeightDecl& w) {
    const auto [attention, part] = attention_weight(w.name);
    return part != "q" || program.weight(attention + ".k") != nullptr;
  });
}

std::string range_text(std::span<const int8_t> exponents) {
  const auto [low, high] = std::ranges::minmax(exponents);
  return fmt::format("x 2^{} to 2^{}", low, high);
}

}  // namespace

Result<WeightRules> WeightRules::make(const Program& program, const ModelSource& source, int residual_shift,
                                      std::span<const InputAlteration> inputs) {
  WeightRules rules;
  rules.program_ = &program;
  rules.source_ = &source;
  rules.residual_shift_ = residual_shift;
  rules.own_keys_ = every_query_has_its_keys(program);
  for (const InputAlteration& input : inputs) {
    rules.norms_[input.of.norm] = input.exponents;
    for (const std::string& reader : input.of.readers) rules.readers_[reader] = input.exponents;
  }
  if (residual_shift == 0) return rules;
  const auto writers = residual_writers(program);
  RETURN_IF_ERROR(writers);
  rules.residual_writers_ = {writers->begin(), writers->end()};
  return rules;
}

Result<Alteration> WeightRules::of(const WeightDecl& weight) {
  if (const auto norm = norms_.find(weight.name); norm != norms_.end()) {
    Alteration divided{.what = fmt::format("channels for its readers: / 2^{} to 2^{}", std::ranges::min(norm->second),
                                           std::ranges::max(norm->second))};
    for (const int8_t e : norm->second) divided.exponents.push_back(static_cast<int8_t>(-e));
    return divided;
  }
  auto altered = rows_altered(weight);
  RETURN_IF_ERROR(altered);
  if (const auto reader = readers_.find(weight.name); reader != readers_.end()) {
    altered->input_exponents = reader->second;
    altered->what +=
        fmt::format("{}inputs equalised: {}", altered->what.empty() ? "" : "; ", range_text(reader->second));
  }
  return altered;
}

Result<Alteration> WeightRules::rows_altered(const WeightDecl& weight) {
  if (!residual_writers_.contains(weight.name)) return keys_equalised(weight);
  const auto rows = static_cast<size_t>(weight.shape[weight.role == WeightRole::expert ? 1 : 0]);  // of each expert
  return Alteration{std::vector<int8_t>(rows, static_cast<int8_t>(-residual_shift_)),
                    {},
                    fmt::format("residual stream / 2^{}", residual_shift_)};
}

Result<Alteration> WeightRules::keys_equalised(const WeightDecl& weight) {
  const auto [attention, part] = attention_weight(weight.name);
  if (attention.empty() || !turns_whole(*program_, weight.head_dim)) return Alteration{};
  const auto has = [&](std::string_view p) { return program_->weight(fmt::format("{}.{}", attention, p)) != nullptr; };
  if (!own_keys_ || has("q_norm") != has("k_norm") || has("k_norm") != part.ends_with("_norm")) return Alteration{};
  const auto layer = layer_exponents(attention);
  RETURN_IF_ERROR(layer);
  const LayerExponents& heads = **layer;
  if (std::ranges::all_of(heads, [](const auto& head) { return head.empty(); })) return Alteration{};

  const int64_t d = weight.head_dim, count = weight.shape[0] / d;
  const int64_t shared = count / static_cast<int64_t>(heads.size());  // query heads by key head
  const bool is_key = part.starts_with("k");
  Alteration out{.exponents = std::vector<int8_t>(static_cast<size_t>(weight.shape[0]), 0)};
  for (int64_t row = 0; row < weight.shape[0]; ++row) {
    const auto& head = heads[static_cast<size_t>(row / d / shared)];
    if (head.empty()) continue;
    const int8_t e = head[static_cast<size_t>(row % d % (d / 2))];
    out.exponents[static_cast<size_t>(row)] = static_cast<int8_t>(is_key ? e : -e);
  }
  out.what = fmt::format("{} equalised: {}", is_key ? "keys" : "queries for keys", range_text(out.exponents));
  return out;
}

Result<const WeightRules::LayerExponents*> WeightRules::layer_exponents(const std::string& attention) {
  if (const auto known = layers_.find(attention); known != layers_.end()) return &known->second;
  const WeightDecl* q_norm = program_->weight(attention + ".q_norm");
  const WeightDecl* k_norm = program_->weight(attention + ".k_norm");
  auto exponents = k_norm != nullptr ? exponents_by_norms(*q_norm, *k_norm) : exponents_by_rows(attention);
  RETURN_IF_ERROR(exponents);
  return &layers_.emplace(attention, std::move(*exponents)).first->second;
}

Result<WeightRules::LayerExponents> WeightRules::exponents_by_norms(const WeightDecl& q_norm,
                                                                    const WeightDecl& k_norm) const {
  const auto q = vector_of(q_norm), k = vector_of(k_norm);
  RETURN_IF_ERROR(q);
  RETURN_IF_ERROR(k);
  const std::vector<double> wide_q(q->begin(), q->end()), wide_k(k->begin(), k->end());
  return LayerExponents{key_exponents({pairs(wide_k), {pairs(wide_q)}})};
}

Result<WeightRules::LayerExponents> WeightRules::exponents_by_rows(const std::string& attention) const {
  std::vector<float> gains;  // of the norm before q and k
  if (const WeightDecl* norm = program_->weight(attention + "_norm")) {
    auto values = vector_of(*norm);
    RETURN_IF_ERROR(values);
    gains = std::move(*values);
  }
  const auto q = row_sizes(attention + ".q", gains), k = row_sizes(attention + ".k", gains);
  RETURN_IF_ERROR(q);
  RETURN_IF_ERROR(k);
  const auto d = static_cast<size_t>(program_->weight(attention + ".k")->head_dim);
  const size_t key_heads = k->size() / d, shared = q->size() / k->size();
  LayerExponents exponents;
  for (size_t head = 0; head < key_heads; ++head) {
    PairSizes sizes{pairs(std::span(*k).subspan(head * d, d)), {}};
    for (size_t i = 0; i < shared; ++i)
      sizes.queries.push_back(pairs(std::span(*q).subspan((head * shared + i) * d, d)));
    exponents.push_back(key_exponents(sizes));
  }
  return exponents;
}

// The expected root of the mean square of each output.
Result<std::vector<double>> WeightRules::row_sizes(const std::string& name, const std::vector<float>& gains) const {
  const WeightDecl* weight = program_->weight(name);
  CHECK(weight != nullptr);
  const auto tensor = tensor_of(*source_, *weight);
  RETURN_IF_ERROR(tensor);
  const RowReader reader(*tensor, *weight, source_->source_of(*weight));
  const int64_t inputs = reader.inputs(), step = std::max<int64_t>(1, kSlabValues / inputs);
  CHECK(gains.empty() || static_cast<int64_t>(gains.size()) == inputs);
  std::vector<double> sizes(static_cast<size_t>(reader.outputs()), 0);
  std::vector<float> slab;
  for (int64_t first = 0; first < reader.outputs(); first += step) {
    const int64_t count = std::min(step, reader.outputs() - first);
    slab.resize(static_cast<size_t>(count * inputs));
    RETURN_IF_ERROR(reader.read(first, count, slab.data()));
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < inputs; ++j) {
        const double x = static_cast<double>(slab[i * inputs + j]) * (gains.empty() ? 1.0F : gains[j]);
        sum += x * x;
      }
      sizes[static_cast<size_t>(first + i)] = sum;
    }
  }
  if (const WeightDecl* bias = program_->weight(name + ".bias")) {
    const auto values = vector_of(*bias);
    RETURN_IF_ERROR(values);
    for (size_t i = 0; i < sizes.size(); ++i) sizes[i] += static_cast<double>((*values)[i]) * (*values)[i];
  }
  for (double& s : sizes) s = std::sqrt(s);
  return sizes;
}

Result<std::vector<float>> WeightRules::vector_of(const WeightDecl& weight) const {
  const auto tensor = tensor_of(*source_, weight);
  RETURN_IF_ERROR(tensor);
  const RowReader reader(*tensor, weight, source_->source_of(weight));
  std::vector<float> values(static_cast<size_t>(reader.outputs()));
  RETURN_IF_ERROR(reader.read(0, reader.outputs(), values.data()));
  return values;
}

}  // namespace onw
