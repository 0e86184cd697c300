// A Hugging Face model folder: config.json and the safetensors files that belong to it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/safetensors.h"

namespace onw {

class HfCheckpoint {
 public:
  struct Found {
    const SafetensorsFile* file = nullptr;
    const SafeTensor* tensor = nullptr;
  };

  // With model.safetensors.index.json exactly the files that it names are read, else model.safetensors alone: whatever
  // else lies in the folder is not part of the model. Every file and every entry of the index is checked here.
  // Errors: not_found, bad_format, truncated_file, missing_tensor, unsupported.
  static Result<HfCheckpoint> open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const nlohmann::json& config() const { return *config_; }

  // The tensor of that exact name; file is null where there is none.
  Found find(std::string_view name) const;

  // A text tensor by its name without the prefix of whoever saved it: "layers.0.mlp.up_proj.weight" is looked for as
  // model.language_model., language_model.model., model. and without prefix, in this order; "lm_head.weight" plain and
  // behind language_model..
  Found find_text(std::string_view suffix) const;

  // Every tensor of the checkpoint, by name.
  const std::map<std::string, Found, std::less<>>& tensors() const { return tensors_; }
  std::vector<std::filesystem::path> files() const;

 private:
  std::filesystem::path folder_;
  std::shared_ptr<const nlohmann::json> config_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Found, std::less<>> tensors_;
};

}  // namespace onw
