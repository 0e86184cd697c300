#include "convert/rotated_checkpoint.h"

#include <nlohmann/json.hpp>

#include "convert/block_type.h"
#include "graph/json.h"
#include "models/rotated.h"

namespace onw {
namespace {

using nlohmann::json;

constexpr std::string_view kRemedy = "Take the publisher's unrotated model";

// A value that must be this one where it is there.
Result<void> need(const json& object, std::string_view key, std::string_view wanted, std::string_view where) {
  if (!object.contains(key)) return {};
  const std::string said = find_string(object, key).value_or("something else");
  if (said == wanted) return {};
  return error(Code::unsupported, "{}: '{}' is '{}', '{}' is computed. {}", where, key, said, wanted, kRemedy);
}

}  // namespace

Result<void> take_rotated_config(const HfCheckpoint& checkpoint, json& config) {
  const std::string where = (checkpoint.folder() / "config.json").string();
  const std::string type = find_string(config, "model_type").value_or("");
  const bool rotated = type.starts_with("prism_hadamard");
  if (!rotated && !config.contains("hadamard") && !config.contains("hadamard_config")) {
    config.erase(std::string(kRotatedKey));  // some other list
    return {};
  }
  if (!is_rotated(config))
    return error(Code::unsupported, "{}: the weights are rotated, but there is no list '{}' that says which. {}", where,
                 kRotatedKey, kRemedy);
  if (find_int(config, "schema_version") != 2)
    return error(Code::unsupported, "{}: 'schema_version' of a rotated model is not 2. {}", where, kRemedy);
  RETURN_IF_ERROR(need(config, "gdn_activation_layout", "grouped", where));
  RETURN_IF_ERROR(need(config, "tensor_namespace", "mlx-vlm-qwen3_5", where));
  RETURN_IF_ERROR(need(config, "base_model_type", "qwen3_5", where));
  const auto file = checkpoint.folder() / "hadamard.json";
  if (const auto form = read_json_file(file); form && form->is_object()) {
    RETURN_IF_ERROR(need(*form, "prism.hadamard.transform", "normalized-sylvester-walsh-hadamard", file.string()));
    RETURN_IF_ERROR(need(*form, "prism.hadamard.axis", "input-last-dimension", file.string()));
  } else if (!form && form.error().code != Code::not_found) {
    return Failure(form.error());
  }
  config["model_type"] = "qwen3_5";
  config["architectures"] = json::array({"Qwen3_5ForConditionalGeneration"});
  return {};
}

void take_shifted_norms(const HfCheckpoint& checkpoint, json& config) {
  for (const auto& [name, found] : checkpoint.tensors()) {
    if (!name.ends_with(".linear_attn.conv1d.weight")) continue;
    const auto& shape = found.tensor->shape;
    if (shape.size() == 3 && shape[2] == 1 && shape[1] > 1) config["onw_norms_hold_one"] = true;
    return;
  }
}

Result<void> check_signs(const HfCheckpoint::Found& found) {
  const SafeTensor& t = *found.tensor;
  BlockType type = BlockType::f32;
  if (t.type == ElementType::f16) type = BlockType::f16;
  if (t.type == ElementType::bf16) type = BlockType::bf16;
  if (type == BlockType::f32 && t.type != ElementType::f32)
    return error(Code::unsupported, "{}: '{}' is {}, signs are F32, F16 or BF16", found.file->file().path().string(),
                 t.name, name(t.type));
  const auto bytes = found.file->bytes(t);
  std::vector<float> signs(bytes.size() / static_cast<size_t>(block_info(type).bytes));
  dequantise_blocks(type, bytes, signs.data());
  for (size_t i = 0; i < signs.size(); ++i)
    if (signs[i] != 1.0f && signs[i] != -1.0f)
      return error(Code::bad_format, "{}: '{}' holds {} at {}, expected 1 or -1. Download it again",
                   found.file->file().path().string(), t.name, signs[i], i);
  return {};
}

}  // namespace onw
