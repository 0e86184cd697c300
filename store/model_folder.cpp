#include "store/model_folder.h"

#include <nlohmann/json.hpp>

#include "base/output_file.h"
#include "graph/json.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

// Size and sampled blocks of the weights against engine.json.
Result<void> check_samples(const WeightFile& weights, const FileDigest& expected) {
  if (weights.bytes() != expected.bytes)
    return error(Code::truncated_file,
                 "{}: {} bytes, engine.json says {}. Copy the file again, or convert the model again",
                 weights.path().string(), weights.bytes(), expected.bytes);
  const std::string sampled = weights.sampled_digest();
  if (sampled != expected.sampled)
    return error(Code::digest_mismatch,
                 "{}: sampled blocks have the digest {}, engine.json says {}. The file is damaged or of another "
                 "model: convert again",
                 weights.path().string(), sampled, expected.sampled);
  return {};
}

}  // namespace

bool is_model_folder(const fs::path& folder) {
  std::error_code failed;
  return fs::exists(folder / kEngineFile, failed) && fs::exists(folder / kWeightsFile, failed);
}

Result<ModelFolder> ModelFolder::open(const fs::path& folder) {
  ModelFolder opened;
  opened.path_ = folder;
  const fs::path engine_path = folder / kEngineFile;
  const auto root = read_json_file(engine_path);
  if (!root && root.error().code == Code::not_found)
    return error(Code::not_found,
                 "{}: no engine.json, so it is no model folder. Convert the model first: onw convert {} OUT",
                 folder.string(), folder.string());
  RETURN_IF_ERROR(root);
  auto engine = parse_engine(*root, engine_path.string());
  RETURN_IF_ERROR(engine);
  opened.engine_ = std::move(*engine);
  const auto digest = opened.engine_.files.find(std::string(kWeightsFile));
  if (digest == opened.engine_.files.end())
    return error(Code::bad_format, "{}: no digest of {}. Convert the model again", engine_path.string(), kWeightsFile);

  auto config = read_json_file(folder / "config.json");
  RETURN_IF_ERROR(config);
  opened.config_ = std::make_shared<nlohmann::json>(std::move(*config));
  auto weights = WeightFile::open(folder / kWeightsFile, opened.engine_.weights);
  RETURN_IF_ERROR(weights);
  RETURN_IF_ERROR(check_samples(*weights, digest->second));
  opened.weights_ = std::move(*weights);
  if (!opened.engine_.experts.empty()) RETURN_IF_ERROR(opened.open_experts());
  return opened;
}

Result<void> ModelFolder::open_experts() {
  const auto digest = engine_.files.find(std::string(kExpertsFile));
  if (digest == engine_.files.end())
    return error(Code::bad_format, "{}: no digest of {}. Convert the model again", (path_ / kEngineFile).string(),
                 kExpertsFile);
  std::vector<StoredWeight> stored;
  for (size_t i = 0; i < engine_.experts.size(); ++i) {
    stored.push_back(engine_.experts[i].stored());
    for (size_t part = 0; part < engine_.experts[i].parts.size(); ++part)
      parts_[engine_.experts[i].parts[part].name] = {i, part};
  }
  auto file = WeightFile::open(path_ / kExpertsFile, std::move(stored));
  RETURN_IF_ERROR(file);
  RETURN_IF_ERROR(check_samples(*file, digest->second));
  experts_ = std::move(*file);
  return {};
}

Result<WeightView> ModelFolder::weight(std::string_view name) const {
  const auto found = parts_.find(name);
  if (found == parts_.end()) return weights_.weight(name);
  const ExpertRecords& records = engine_.experts[found->second.records];
  const auto all = experts_.weight(records.name);
  RETURN_IF_ERROR(all);
  return records.view(found->second.part, all->codes);
}

std::vector<int64_t> ModelFolder::shape(std::string_view name) const {
  const auto found = parts_.find(name);
  if (found == parts_.end()) {
    const auto plain = weights_.weights().find(name);
    return plain == weights_.weights().end() ? std::vector<int64_t>() : plain->second.shape;
  }
  const ExpertRecords& records = engine_.experts[found->second.records];
  std::vector<int64_t> shape = records.parts[found->second.part].shape;
  shape.insert(shape.begin(), records.experts);
  return shape;
}

Result<std::string> ModelFolder::digest() const {
  const FileDigest& known = engine_.files.at(std::string(kWeightsFile));
  const auto modified = modification_time_ns(weights_.path());
  RETURN_IF_ERROR(modified);
  if (*modified == known.modified_ns && weights_.bytes() == known.bytes) return known.sha256;
  RETURN_IF_ERROR(check_deep());
  return known.sha256;
}

Result<void> ModelFolder::check_deep() const {
  for (const WeightFile* file : {&weights_, &experts_}) {
    if (file == &experts_ && engine_.experts.empty()) continue;
    const FileDigest& known = engine_.files.at(file->path().filename().string());
    const std::string actual = file->digest();
    if (actual != known.sha256)
      return error(
          Code::digest_mismatch,
          "{}: SHA-256 {}, engine.json says {}. The file is damaged: copy it again, or convert the model again",
          file->path().string(), actual, known.sha256);
  }
  return {};
}

}  // namespace onw
