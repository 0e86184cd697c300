// A converted model, opened: engine.json, config.json and the mapped weights.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/engine_json.h"
#include "store/weight_file.h"

namespace onw {

inline constexpr std::string_view kWeightsFile = "weights.safetensors";
inline constexpr std::string_view kExpertsFile = "experts.safetensors";  // of mixtures of experts
inline constexpr std::string_view kEngineFile = "engine.json";

class ModelFolder {
 public:
  // Checks what every start checks: header, length, footer and sampled blocks (well under a second from a cold disk).
  // Errors: not_found, bad_format, truncated_file, missing_tensor, unsupported, digest_mismatch.
  static Result<ModelFolder> open(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  const EngineInfo& engine() const { return engine_; }
  const nlohmann::json& config() const { return *config_; }  // config.json
  const WeightFile& weights() const { return weights_; }
  const WeightFile& experts() const { return experts_; }  // of no bytes where the model has none

  // By plain name: "layers.3.attn.q", or a stack, "layers.3.experts.gate". Errors: missing_tensor.
  Result<WeightView> weight(std::string_view name) const;

  // [out, in], or [n], with the experts before them for a stack; empty where there is no such weight.
  std::vector<int64_t> shape(std::string_view name) const;

  // SHA-256 of the weights, the key of all that is derived from them: from engine.json while the file's size and
  // modification time are those written there, else read anew. Errors: io, digest_mismatch.
  Result<std::string> digest() const;

  // Reads every byte of the weights, experts included, and compares. Errors: digest_mismatch with both digests.
  Result<void> check_deep() const;

 private:
  struct ExpertPart {
    size_t records = 0, part = 0;  // of engine_.experts
  };

  Result<void> open_experts();

  std::filesystem::path path_;
  EngineInfo engine_;
  std::shared_ptr<const nlohmann::json> config_;
  WeightFile weights_, experts_;
  std::map<std::string, ExpertPart, std::less<>> parts_;
};

// Whether `folder` holds a finished model of ours (not whether it is intact).
bool is_model_folder(const std::filesystem::path& folder);

}  // namespace onw
