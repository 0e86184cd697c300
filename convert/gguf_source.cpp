// A GGUF file as a source.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/output_file.h"
#include "convert/gguf_parts.h"
#include "convert/gguf_tokenizer.h"
#include "convert/model_source.h"
#include "convert/stop_ids.h"
#include "graph/json.h"
#include "models/registry.h"

namespace onw {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kMaxListInJson = 512;  // per-layer lists pass, vocabularies do not

json to_json(const GgufArray& array) {
  json list = json::array();
  for (int64_t i = 0; i < array.count; ++i) {
    if (array.is_strings()) {
      list.push_back(array.strings[i]);
    } else if (const double x = array.number(i); x == static_cast<double>(array.integer(i))) {
      list.push_back(array.integer(i));
    } else {
      list.push_back(x);
    }
  }
  return list;
}

// Whether some layer has keys and no values: what its keys are projected to is both.
bool keys_are_values(const GgufParts& parts) {
  constexpr std::string_view kKeys = ".attn_k.weight";
  for (const GgufFile& file : parts.files())
    for (const GgufTensor& t : file.tensors()) {
      if (!t.name.ends_with(kKeys)) continue;
      const std::string layer(t.name.substr(0, t.name.size() - kKeys.size()));
      if (parts.find(layer + ".attn_v.weight").file == nullptr &&
          parts.find(layer + ".attn_qkv.weight").file == nullptr)
        return true;
    }
  return false;
}

// The metadata as models/ reads it: Family::config_from_gguf says what is in it.
json metadata_of(const GgufParts& parts) {
  json m = json::object();
  for (const auto& [key, value] : parts.first().header().metadata) {
    const std::string name(key);
    if (const auto* array = std::get_if<GgufArray>(&value)) {
      if (array->count <= kMaxListInJson) m[name] = to_json(*array);
    } else {
      std::visit(
          [&](const auto& v) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(v)>, GgufArray>) m[name] = v;
          },
          value);
    }
  }
  if (const auto embedding = parts.find("token_embd.weight"); embedding.file != nullptr)
    m["onw.vocab_size"] = embedding.tensor->shape.front();
  m["onw.has_head"] = parts.find("output.weight").file != nullptr;
  m["onw.has_attention_bias"] = parts.find("blk.0.attn_q.bias").file != nullptr;
  m["onw.keys_are_values"] = keys_are_values(parts);
  m["onw.has_mlp_bias"] = parts.find("blk.0.ffn_up.bias").file != nullptr;
  if (const auto freqs = parts.find("rope_freqs.weight");
      freqs.file != nullptr && freqs.tensor->type == BlockType::f32) {
    const auto bytes = freqs.file->bytes(*freqs.tensor);
    std::vector<float> values(bytes.size() / 4);
    dequantise_blocks(BlockType::f32, bytes, values.data());
    m["onw.rope_freqs"] = values;
  }
  return m;
}

class GgufSource final : public ModelSource {
 public:
  static Result<std::unique_ptr<ModelSource>> open(const fs::path& path) {
    auto source = std::make_unique<GgufSource>();
    auto parts = GgufParts::open(path);
    RETURN_IF_ERROR(parts);
    source->parts_ = std::move(*parts);
    if (source->first().value("prism.hadamard.version") != nullptr ||
        source->first().value("prism.hadamard.block_size") != nullptr)
      return error(Code::unsupported,
                   "{}: its weights are rotated (prism.hadamard), which is read from the MLX folder of the same model "
                   "alone: without the rotation it would write nonsense. Take that folder",
                   path.string());
    const auto family = find_gguf_family(source->first().architecture());
    if (!family)
      return Failure(Error{family.error().code, fmt::format("{}: {}", path.string(), family.error().message)});
    auto config = (*family)->config_from_gguf(metadata_of(source->parts_));
    if (!config) return failure(std::move(config), path.string());
    source->config_ = std::move(*config);
    return source;
  }

  fs::path path() const override { return first().path(); }
  const json& config() const override { return config_; }
  const WeightSource& source_of(const WeightDecl& weight) const override { return weight.gguf; }
  bool is_quantised() const override { return true; }

  Result<std::optional<SourceTensor>> find(const WeightSource& source) const override {
    for (const std::string& name : source.names) {
      const auto [file, t] = parts_.find(name);
      if (file == nullptr) continue;
      const BlockInfo& info = block_info(t->type);
      if (!info.readable)
        return error(Code::unsupported,
                     "{}: '{}' is {}, which onw does not read. Take a file with Q4_K_M, Q4_0, Q8_0 or F16",
                     file->path().string(), name, info.name);
      return SourceTensor{name, std::string(info.name), file->path(), t->type, t->shape, file->bytes(*t)};
    }
    return std::nullopt;
  }

  std::vector<std::string> tensor_names() const override {
    std::vector<std::string> names;
    for (const GgufFile& file : parts_.files())
      for (const GgufTensor& t : file.tensors())
        if (t.name != "rope_freqs.weight") names.emplace_back(t.name);
    return names;
  }

  Result<void> write_files(const fs::path& folder) const override {
    RETURN_IF_ERROR(write_file_atomically(folder / "config.json", dump_json(config_)));
    const auto tokenizer = read_gguf_tokenizer(first());
    if (!tokenizer) return {};
    auto files = tokenizer_from_gguf(*tokenizer);
    if (!files) return failure(std::move(files), path().string());
    RETURN_IF_ERROR(write_file_atomically(folder / "tokenizer.json", files->tokenizer_json));
    return write_file_atomically(folder / "tokenizer_config.json", files->tokenizer_config_json);
  }

  std::vector<int64_t> stop_ids() const override {
    std::set<int64_t> ids;
    for (const char* key :
         {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
      if (const auto id = first().integer(key); id && *id >= 0) ids.insert(*id);
    const std::string_view chat_template = first().string("tokenizer.chat_template").value_or("");
    if (const GgufArray* tokens = first().array("tokenizer.ggml.tokens"); tokens != nullptr && tokens->is_strings())
      for (int64_t id = 0; id < tokens->count; ++id)
        if (is_turn_end(tokens->strings[id]) && chat_template.find(tokens->strings[id]) != chat_template.npos)
          ids.insert(id);
    return {ids.begin(), ids.end()};
  }

  GenerationDefaults generation() const override {
    return {first().number("general.sampling.temp"), first().number("general.sampling.top_p"),
            first().number("general.sampling.min_p"), first().number("general.sampling.penalty_repeat"),
            first().integer("general.sampling.top_k")};
  }

  Provenance provenance() const override {
    return {.source = path().string(), .licence = std::string(first().string("general.license").value_or(""))};
  }

  std::string fingerprint() const override {
    std::string all;
    for (const GgufFile& file : parts_.files()) all += file_fingerprint(file.path()).value_or("");
    return all;
  }

 private:
  const GgufFile& first() const { return parts_.first(); }

  GgufParts parts_;
  json config_;
};

}  // namespace

Result<std::unique_ptr<ModelSource>> open_gguf_source(const fs::path& file) { return GgufSource::open(file); }

}  // namespace onw
