#include "convert/checkpoint.h"

#include <nlohmann/json.hpp>
#include <set>

#include "graph/json.h"
#include "store/model_folder.h"

namespace onw {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Newest layout first: a folder that holds several prefixes is a multimodal one, and its text part has the longest.
constexpr std::string_view kPrefixes[] = {"model.language_model.", "language_model.model.", "model.", ""};
constexpr std::string_view kHeadPrefixes[] = {"", "language_model.", "model."};

// A file of the index lies in the folder itself: no separators, no "..", nothing hidden.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find_first_of("/\\:") == name.npos &&
         name.find('\0') == name.npos;
}

struct Index {
  std::set<std::string> files;
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor, file
};

Result<Index> read_index(const fs::path& path) {
  const auto root = read_json_file(path, 256 << 20);
  RETURN_IF_ERROR(root);
  const json* map = find_object(*root, "weight_map");
  if (map == nullptr || map->empty())
    return error(Code::bad_format, "{}: no object 'weight_map' with entries. Download the index again", path.string());
  Index index;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>()))
      return error(Code::bad_format,
                   "{}: '{}' is said to be in {}, expected the name of a file beside the index. Do not use this model",
                   path.string(), tensor, dump_json(file, -1).substr(0, 80));
    index.files.insert(file.get<std::string>());
    index.weight_map.emplace_back(tensor, file.get<std::string>());
  }
  return index;
}

Result<Index> index_of(const fs::path& folder) {
  const fs::path index = folder / "model.safetensors.index.json";
  if (fs::exists(index)) return read_index(index);
  if (fs::exists(folder / "model.safetensors")) return Index{{"model.safetensors"}, {}};
  if (fs::exists(folder / "pytorch_model.bin") || fs::exists(folder / "pytorch_model.bin.index.json"))
    return error(Code::unsupported,
                 "{}: only pickled weights (pytorch_model.bin), which can run code. Save the model as safetensors",
                 folder.string());
  if (fs::exists(folder / kWeightsFile))
    return error(Code::not_found,
                 "{}: has {} but no {}, without which a converted model cannot be read. The copy is not complete, or "
                 "the conversion did not end: copy it again, or convert again",
                 folder.string(), kWeightsFile, kEngineFile);
  return error(
      Code::not_found,
      "{}: neither model.safetensors nor model.safetensors.index.json. Download the weights too, or name a .gguf file",
      folder.string());
}

}  // namespace

Result<HfCheckpoint> HfCheckpoint::open(const fs::path& folder) {
  HfCheckpoint opened;
  opened.folder_ = folder;
  auto config = read_json_file(folder / "config.json");
  if (!config) {
    if (config.error().code != Code::not_found) return failure(std::move(config));
    return error(Code::not_found, "{}: no config.json. Is it the folder of a Hugging Face model?", folder.string());
  }
  if (!config->is_object())
    return error(Code::bad_format, "{}: config.json is not an object. Download it again", folder.string());
  opened.config_ = std::make_shared<json>(std::move(*config));

  const auto index = index_of(folder);
  RETURN_IF_ERROR(index);
  for (const std::string& name : index->files) {
    auto file = SafetensorsFile::open(folder / name);
    if (!file && file.error().code == Code::not_found)
      return error(Code::not_found, "{}: '{}' is missing, the index names {} files. Finish the download",
                   folder.string(), name, index->files.size());
    RETURN_IF_ERROR(file);
    opened.files_.push_back(std::make_unique<SafetensorsFile>(std::move(*file)));
    const SafetensorsFile* held = opened.files_.back().get();
    for (const SafeTensor& tensor : held->tensors())
      if (!opened.tensors_.emplace(tensor.name, Found{held, &tensor}).second)
        return error(Code::bad_format, "{}: '{}' is in '{}' and in another file of the index. Download the model again",
                     folder.string(), tensor.name, name);
  }
  for (const auto& [tensor, file] : index->weight_map) {
    const Found found = opened.find(tensor);
    if (found.file == nullptr || found.file->file().path() != folder / file)
      return error(Code::missing_tensor,
                   "{}: the index says that '{}' is in '{}', which does not hold it. Download both again",
                   folder.string(), tensor, file);
  }
  return opened;
}

HfCheckpoint::Found HfCheckpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? Found{} : it->second;
}

HfCheckpoint::Found HfCheckpoint::find_text(std::string_view suffix) const {
  using Prefixes = std::span<const std::string_view>;
  const Prefixes prefixes = suffix.starts_with("lm_head.") ? Prefixes(kHeadPrefixes) : Prefixes(kPrefixes);
  for (const std::string_view prefix : prefixes)
    if (const Found found = find(std::string(prefix).append(suffix)); found.file != nullptr) return found;
  return {};
}

std::vector<fs::path> HfCheckpoint::files() const {
  std::vector<fs::path> paths;
  for (const auto& file : files_) paths.push_back(file->file().path());
  return paths;
}

}  // namespace onw
