// A Hugging Face folder as a source.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/lfs_pointer.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "convert/checkpoint.h"
#include "convert/mlx_quantisation.h"
#include "convert/model_source.h"
#include "convert/rotated_checkpoint.h"
#include "convert/stop_ids.h"
#include "graph/json.h"

namespace onw {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What goes into the model folder as published, where there is such a file.
constexpr std::array kCopied = {"generation_config.json",   "tokenizer.json",        "tokenizer_config.json",
                                "special_tokens_map.json",  "chat_template.jinja",   "chat_template.json",
                                "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"};

constexpr std::string_view kBlocks = "_blocks";  // of MXFP4

struct TypePair {
  ElementType element;
  BlockType block;
};
constexpr std::array kReadable = {
    TypePair{ElementType::f32, BlockType::f32}, TypePair{ElementType::f16, BlockType::f16},
    TypePair{ElementType::bf16, BlockType::bf16}, TypePair{ElementType::f64, BlockType::f64}};

// An empty object where there is no such file.
Result<json> optional_json(const fs::path& path) {
  auto root = read_json_file(path);
  if (!root && root.error().code == Code::not_found) return json::object();
  if (root && !root->is_object())
    return error(Code::bad_format, "{}: not a JSON object. Download the file again", path.string());
  return root;
}

// tie_embedding, which LFM2 has, goes before tie_word_embeddings, as in transformers.
Result<std::optional<bool>> tie_in(const json& config, std::string_view where) {
  const auto own = read_bool(config, "tie_embedding", where);
  if (!own || *own) return own;
  if (const json* text = find_object(config, "text_config")) {
    const auto tied = read_bool(*text, "tie_word_embeddings", where);
    if (!tied || *tied) return tied;
  }
  return read_bool(config, "tie_word_embeddings", where);
}

// "license: apache-2.0" of the front matter of README.md.
std::string licence_in_readme(const fs::path& readme) {
  const auto file = MappedFile::open(readme);
  if (!file) return {};
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()),
                              std::min<size_t>(file->bytes().size(), 4096));
  constexpr std::string_view kKey = "\nlicense:";
  const size_t at = text.find(kKey);
  if (!text.starts_with("---") || at == text.npos) return {};
  std::string_view value = text.substr(at + kKey.size());
  value = value.substr(0, value.find('\n'));
  const size_t begin = value.find_first_not_of(" '\""), end = value.find_last_not_of(" '\"\r");
  return begin == value.npos ? std::string() : std::string(value.substr(begin, end - begin + 1));
}

Result<void> copy_small_file(const fs::path& from, const fs::path& to) {
  const auto file = MappedFile::open(from);
  RETURN_IF_ERROR(file);
  return write_file_atomically(to, {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()});
}

class HuggingFaceSource final : public ModelSource {
 public:
  static Result<std::unique_ptr<ModelSource>> open(const fs::path& folder) {
    auto source = std::make_unique<HuggingFaceSource>();
    auto checkpoint = HfCheckpoint::open(folder);
    RETURN_IF_ERROR(checkpoint);
    source->checkpoint_ = std::move(*checkpoint);
    source->config_ = source->checkpoint_.config();
    auto mlx = MlxQuantisation::read(source->config_, (folder / "config.json").string());
    RETURN_IF_ERROR(mlx);
    source->mlx_ = std::move(*mlx);
    const json* quantised = find_object(source->config_, "quantization_config");
    if (quantised != nullptr && !source->mlx_ &&
        find_string(*quantised, "quant_method") != "mxfp4")  // those are experts' codes
      return error(Code::unsupported,
                   "{}: the weights are quantised already ({}). Take the publisher's BF16 model, or a GGUF file",
                   folder.string(), find_string(*quantised, "quant_method").value_or("an unnamed method"));
    RETURN_IF_ERROR(take_rotated_config(source->checkpoint_, source->config_));
    take_shifted_norms(source->checkpoint_, source->config_);
    RETURN_IF_ERROR(source->settle_tie());
    const fs::path generation_path = folder / "generation_config.json";
    const auto generation = optional_json(generation_path);
    RETURN_IF_ERROR(generation);
    const auto defaults = parse_generation(*generation, generation_path.string());
    RETURN_IF_ERROR(defaults);
    source->defaults_ = *defaults;
    RETURN_IF_ERROR(source->collect_stops(*generation));
    return source;
  }

  fs::path path() const override { return checkpoint_.folder(); }
  const json& config() const override { return config_; }
  const WeightSource& source_of(const WeightDecl& weight) const override { return weight.hugging_face; }
  bool is_quantised() const override { return mlx_.has_value(); }
  std::vector<int64_t> stop_ids() const override { return {stops_.begin(), stops_.end()}; }

  Result<std::optional<SourceTensor>> find(const WeightSource& source) const override {
    for (const std::string& name : source.names) {
      const auto found = checkpoint_.find_text(name);
      if (found.file == nullptr) continue;
      const SafeTensor& t = *found.tensor;
      if (name.ends_with(kBlocks)) return fp4_stack(name, found);
      if (mlx_ && t.type == ElementType::u32) {
        auto tensor = mlx_->tensor(checkpoint_, found);
        RETURN_IF_ERROR(tensor);
        return std::move(*tensor);
      }
      if (name.ends_with(kSigns)) RETURN_IF_ERROR(check_signs(found));
      const auto type = std::ranges::find(kReadable, t.type, &TypePair::element);
      if (type == kReadable.end())
        return error(
            Code::unsupported,
            "{}: '{}' is {}; F32, F16, BF16 and F64 weights are read. Take the unquantised checkpoint, or a GGUF file",
            found.file->file().path().string(), t.name, onw::name(t.type));
      return SourceTensor{t.name,
                          std::string(onw::name(t.type)),
                          found.file->file().path(),
                          type->block,
                          t.shape,
                          found.file->bytes(t)};
    }
    return std::nullopt;
  }

  std::vector<std::string> tensor_names() const override {
    std::vector<std::string> names;
    for (const auto& [name, found] : checkpoint_.tensors())
      if (!mlx_ || !belongs_to_codes(checkpoint_, name)) names.push_back(name);
    return names;
  }

  Result<void> write_files(const fs::path& folder) const override {
    if (config_ == checkpoint_.config())
      RETURN_IF_ERROR(copy_small_file(path() / "config.json", folder / "config.json"));
    else
      RETURN_IF_ERROR(write_file_atomically(folder / "config.json", dump_json(config_)));
    for (const std::string name : kCopied) {
      const auto file = MappedFile::open(path() / name);
      if (!file && file.error().code == Code::not_found) continue;
      RETURN_IF_ERROR(file);
      if (is_lfs_pointer(file->bytes()))
        return error(Code::bad_format,
                     "{}: a Git LFS pointer, not the file. Fetch the real one: git lfs pull, or onw pull",
                     (path() / name).string());
      RETURN_IF_ERROR(copy_small_file(path() / name, folder / name));
    }
    return {};
  }

  GenerationDefaults generation() const override { return defaults_; }

  Provenance provenance() const override {
    return {.source = find_string(config_, "_name_or_path").value_or(path().string()),
            .licence = licence_in_readme(path() / "README.md")};
  }

  std::string fingerprint() const override {
    std::string all = file_fingerprint(path() / "config.json").value_or("");
    for (const fs::path& file : checkpoint_.files()) all += file_fingerprint(file).value_or("");
    return all;
  }

 private:
  // "<name>_blocks" U8 [experts, rows, groups, 16] and "<name>_scales" U8 [experts, rows, groups] as one stack.
  Result<std::optional<SourceTensor>> fp4_stack(const std::string& name, const HfCheckpoint::Found& blocks) const {
    const std::string scales_name = name.substr(0, name.size() - kBlocks.size()) + "_scales";
    const auto scales = checkpoint_.find_text(scales_name);
    const SafeTensor& t = *blocks.tensor;
    std::vector<int64_t> groups = t.shape;
    if (!groups.empty()) groups.pop_back();
    if (t.type != ElementType::u8 || t.shape.size() != 4 || t.shape[3] != 16 || scales.file == nullptr ||
        scales.tensor->type != ElementType::u8 || scales.tensor->shape != groups)
      return error(Code::bad_format,
                   "{}: '{}' is {} [{}], expected U8 [experts, rows, groups, 16] with '{}' [experts, rows, groups] "
                   "beside it. Download the model again",
                   blocks.file->file().path().string(), t.name, onw::name(t.type), fmt::join(t.shape, ", "),
                   scales_name);
    return SourceTensor{t.name,
                        "MXFP4",
                        blocks.file->file().path(),
                        BlockType::mxfp4,
                        {t.shape[0], t.shape[1], t.shape[2] * 32},
                        blocks.file->bytes(t),
                        scales.file->bytes(*scales.tensor)};
  }

  // The tensors decide: without a head of its own the embedding is the head, unless the config says that there should
  // be one. A head beside "tied" is a copy.
  Result<void> settle_tie() {
    const bool has_head = checkpoint_.find_text("lm_head.weight").file != nullptr;
    const auto said = tie_in(config_, (path() / "config.json").string());
    RETURN_IF_ERROR(said);
    if (*said == false && !has_head)
      return error(
          Code::missing_tensor,
          "{}: no lm_head.weight, though config.json says that the head is not tied to the embedding. An embedding "
          "model cannot generate text; else download the model again",
          path().string());
    const bool tied = said->value_or(!has_head);
    if (*said == tied && !config_.contains("tie_embedding")) return {};
    config_["tie_word_embeddings"] = tied;
    return {};
  }

  Result<void> collect_stops(const json& generation) {
    const auto tokenizer_config = optional_json(path() / "tokenizer_config.json");
    RETURN_IF_ERROR(tokenizer_config);
    const std::string chat_template = read_chat_template(path(), *tokenizer_config);
    std::map<std::string, int64_t> tokens;
    if (fs::exists(path() / "tokenizer.json")) {
      auto added = added_tokens(path() / "tokenizer.json");
      RETURN_IF_ERROR(added);
      tokens = std::move(*added);
    }
    auto stops = collect_stop_ids({&generation, &config_, &*tokenizer_config, chat_template, &tokens});
    if (!stops) return failure(std::move(stops), path().string());
    stops_ = std::move(*stops);
    return {};
  }

  HfCheckpoint checkpoint_;
  json config_;
  std::optional<MlxQuantisation> mlx_;
  GenerationDefaults defaults_;
  std::set<int64_t> stops_;
};

}  // namespace

Result<std::unique_ptr<ModelSource>> open_hugging_face_source(const fs::path& folder) {
  return HuggingFaceSource::open(folder);
}

}  // namespace onw
