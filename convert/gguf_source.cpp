// A GGUF file as a source.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "convert/gguf.h"
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

// The metadata as models/ reads it: Family::config_from_gguf says what is in it.
json metadata_of(const GgufFile& file) {
  json m = json::object();
  for (const auto& [key, value] : file.header().metadata) {
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
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (embedding != nullptr) m["onw.vocab_size"] = embedding->shape.front();
  m["onw.has_head"] = file.find("output.weight") != nullptr;
  if (const GgufTensor* freqs = file.find("rope_freqs.weight"); freqs != nullptr && freqs->type == BlockType::f32) {
    std::vector<float> values(file.bytes(*freqs).size() / 4);
    dequantise_blocks(freqs->type, file.bytes(*freqs), values.data());
    m["onw.rope_freqs"] = values;
  }
  return m;
}

class GgufSource final : public ModelSource {
 public:
  static Result<std::unique_ptr<ModelSource>> open(const fs::path& path) {
    auto source = std::make_unique<GgufSource>();
    auto file = GgufFile::open(path);
    RETURN_IF_ERROR(file);
    source->file_ = std::move(*file);
    if (source->file_.integer("split.count").value_or(1) > 1)
      return error(Code::unsupported,
                   "{}: one part of {} of a split model. Merge the parts first: llama-gguf-split --merge",
                   path.string(), *source->file_.integer("split.count"));
    const auto family = find_gguf_family(source->file_.architecture());
    if (!family)
      return Failure(Error{family.error().code, fmt::format("{}: {}", path.string(), family.error().message)});
    auto config = (*family)->config_from_gguf(metadata_of(source->file_));
    if (!config) return failure(std::move(config), path.string());
    source->config_ = std::move(*config);
    return source;
  }

  fs::path path() const override { return file_.path(); }
  const json& config() const override { return config_; }
  const WeightSource& source_of(const WeightDecl& weight) const override { return weight.gguf; }
  bool is_quantised() const override { return true; }

  Result<std::optional<SourceTensor>> find(const WeightSource& source) const override {
    for (const std::string& name : source.names) {
      const GgufTensor* t = file_.find(name);
      if (t == nullptr) continue;
      const BlockInfo& info = block_info(t->type);
      if (!info.readable)
        return error(Code::unsupported,
                     "{}: '{}' is {}, which onw does not read. Take a file with Q4_K_M, Q4_0, Q8_0 or F16",
                     path().string(), name, info.name);
      return SourceTensor{name, std::string(info.name), file_.path(), t->type, t->shape, file_.bytes(*t)};
    }
    return std::nullopt;
  }

  std::vector<std::string> tensor_names() const override {
    std::vector<std::string> names;
    for (const GgufTensor& t : file_.tensors())
      if (t.name != "rope_freqs.weight") names.emplace_back(t.name);
    return names;
  }

  Result<void> write_files(FolderWriter& out) const override {
    RETURN_IF_ERROR(out.write("config.json", dump_json(config_)));
    const auto tokenizer = read_gguf_tokenizer(file_);
    if (!tokenizer) return {};
    auto files = tokenizer_from_gguf(*tokenizer);
    if (!files) return failure(std::move(files), path().string());
    RETURN_IF_ERROR(out.write("tokenizer.json", files->tokenizer_json));
    return out.write("tokenizer_config.json", files->tokenizer_config_json);
  }

  std::vector<int64_t> stop_ids() const override {
    std::set<int64_t> ids;
    for (const char* key :
         {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
      if (const auto id = file_.integer(key); id && *id >= 0) ids.insert(*id);
    const std::string_view chat_template = file_.string("tokenizer.chat_template").value_or("");
    if (const GgufArray* tokens = file_.array("tokenizer.ggml.tokens"); tokens != nullptr && tokens->is_strings())
      for (int64_t id = 0; id < tokens->count; ++id)
        if (is_turn_end(tokens->strings[id]) && chat_template.find(tokens->strings[id]) != chat_template.npos)
          ids.insert(id);
    return {ids.begin(), ids.end()};
  }

  GenerationDefaults generation() const override {
    return {file_.number("general.sampling.temp"), file_.number("general.sampling.top_p"),
            file_.number("general.sampling.min_p"), file_.number("general.sampling.penalty_repeat"),
            file_.integer("general.sampling.top_k")};
  }

  Provenance provenance() const override {
    return {.source = path().string(), .licence = std::string(file_.string("general.license").value_or(""))};
  }

  std::string fingerprint() const override { return file_fingerprint(path()).value_or(""); }

 private:
  GgufFile file_;
  json config_;
};

}  // namespace

Result<std::unique_ptr<ModelSource>> open_gguf_source(const fs::path& file) { return GgufSource::open(file); }

}  // namespace onw
