// A finished weights file, mapped: weights by their plain name.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/weight_view.h"
#include "store/safetensors.h"
#include "store/weight_plan.h"

namespace onw {

class WeightFile {
 public:
  // Checks the header, that the file is complete, and that every weight of the list is there as the list says.
  // Errors: not_found, bad_format, truncated_file, missing_tensor.
  static Result<WeightFile> open(const std::filesystem::path& path, std::vector<StoredWeight> weights);

  const std::filesystem::path& path() const { return file_.file().path(); }
  int64_t bytes() const { return static_cast<int64_t>(file_.file().bytes().size()); }
  std::span<const std::byte> data() const { return file_.file().bytes(); }
  const std::map<std::string, StoredWeight, std::less<>>& weights() const { return weights_; }
  const SafetensorsFile& safetensors() const { return file_; }

  // Errors: missing_tensor.
  Result<WeightView> weight(std::string_view name) const;
  bool has(std::string_view name) const { return weights_.contains(name); }

  // Whether weights of one format and layout lie one after the other in each of their parts, and `merged` as one weight
  // of all their outputs. In `tiles` each but the last needs a multiple of 16 outputs. Errors: missing_tensor;
  // invalid_argument where they are not adjacent.
  bool adjacent(std::span<const std::string> names) const;
  Result<WeightView> merged(std::span<const std::string> names) const;

  // SHA-256 over 64 blocks of 4 KiB, evenly spread: what every start compares. Cheap even from a cold disk.
  std::string sampled_digest() const;
  // SHA-256 of the whole file.
  std::string digest() const;

 private:
  Result<void> check_footer() const;
  Result<void> check_weight(const StoredWeight& weight) const;

  SafetensorsFile file_;
  std::map<std::string, StoredWeight, std::less<>> weights_;
};

// The same of any bytes, for whoever has just written them.
std::string sampled_digest(std::span<const std::byte> file);

}  // namespace onw
