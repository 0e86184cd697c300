// Checkpoints that MLX quantised: config.json's "quantization", and each matrix as codes, scales and biases.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "convert/checkpoint.h"
#include "convert/model_source.h"

namespace onw {

// What config.json says of such a checkpoint, for all modules and for single ones.
class MlxQuantisation {
 public:
  // Nothing where the config is of no MLX checkpoint. Errors: bad_format; unsupported for a mode that is not affine.
  static Result<std::optional<MlxQuantisation>> read(const nlohmann::json& config, std::string_view where);

  // The matrix whose codes `found` is ("<module>.weight", U32 [..., in * bits / 32]), with "<module>.scales" and
  // "<module>.biases" [..., in / group] beside it. 1 and 2 bits in groups of 128 and 4 bits in groups of 32 or more are
  // taken over as they are, as are narrower groups of 1 and 2 bits as 4-bit codes; 8 bits go to the nearest.
  // Errors: missing_tensor, bad_format, unsupported (other widths and groups).
  Result<SourceTensor> tensor(const HfCheckpoint& checkpoint, const HfCheckpoint::Found& found) const;

 private:
  struct Width {
    int64_t bits = 0, group = 0;
  };
  Result<Width> width_of(std::string_view module) const;

  std::shared_ptr<const nlohmann::json> settings_;
  Width all_;
  std::string where_;
};

// Whether `name` is the scales or biases of codes in the checkpoint.
bool belongs_to_codes(const HfCheckpoint& checkpoint, std::string_view name);

}  // namespace onw
