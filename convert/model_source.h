// A published model, whatever it is stored in: its config, and its tensors by our declaration of a weight.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/affine_tensor.h"
#include "convert/block_type.h"
#include "graph/program.h"
#include "store/engine_json.h"

namespace onw {

// A published tensor where it lies.
struct SourceTensor {
  std::string name;
  std::string type_name;  // as the file calls it: "BF16", "Q4_K"
  std::filesystem::path file;
  BlockType type = BlockType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  std::span<const std::byte> scales = {};  // of MXFP4 whose codes and scales are two tensors; empty: in the blocks
  AffineParts affine = {};                 // of codes whose scales and biases are tensors of their own

  // The values of row `row` of [rows, columns]; a vector is one column.
  int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
  int64_t columns() const;
};

class ModelSource {
 public:
  virtual ~ModelSource() = default;

  virtual std::filesystem::path path() const = 0;

  // A Hugging Face config.json as models/ takes it; tie_word_embeddings says what the tensors say.
  virtual const nlohmann::json& config() const = 0;

  // The side of the declaration that speaks of this kind of source.
  virtual const WeightSource& source_of(const WeightDecl& weight) const = 0;

  // The first of the alternatives that there is; empty where there is none. Errors: unsupported, naming a type that
  // cannot be read.
  virtual Result<std::optional<SourceTensor>> find(const WeightSource& source) const = 0;

  // Names of all tensors, to tell which ones no weight uses.
  virtual std::vector<std::string> tensor_names() const = 0;

  // Whether formats are taken over (a quantised file) rather than chosen.
  virtual bool is_quantised() const = 0;

  // Config, tokenizer and templates into a folder that exists.
  virtual Result<void> write_files(const std::filesystem::path& folder) const = 0;

  virtual std::vector<int64_t> stop_ids() const = 0;
  virtual GenerationDefaults generation() const = 0;
  virtual Provenance provenance() const = 0;  // source, revision and licence, as far as the files tell

  // Changes when a file of the source does: names, sizes, modification times.
  virtual std::string fingerprint() const = 0;
};

// A folder with config.json, or a .gguf file. Errors: not_found, and those of the readers.
Result<std::unique_ptr<ModelSource>> open_source(const std::filesystem::path& path);
Result<std::unique_ptr<ModelSource>> open_hugging_face_source(const std::filesystem::path& folder);
Result<std::unique_ptr<ModelSource>> open_gguf_source(const std::filesystem::path& file);

// The source's tensor for `weight`, checked against its shape. Errors: missing_tensor naming what was looked for,
// bad_format naming both shapes.
Result<SourceTensor> tensor_of(const ModelSource& source, const WeightDecl& weight);

// "path size mtime", for fingerprints. Errors: not_found, io.
Result<std::string> file_fingerprint(const std::filesystem::path& file);

}  // namespace onw
