// From a published model to a model folder: once, on any machine, in bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/choose_format.h"
#include "convert/model_source.h"
#include "store/engine_json.h"

namespace onw {

// Loads what chat and serve load beside the weights, from a folder with tokenizer and templates, for a model of
// `vocabulary` ids. The room text is none of this one's: who converts plugs it in.
using TextCheck = std::function<Result<void>(const std::filesystem::path& folder, int64_t vocabulary)>;

struct ConvertOptions {
  std::string made_for = "cpu";        // cpu or npu: layout and legal formats
  std::optional<WeightFormat> format;  // empty: taken over from a GGUF file, q4g128 for a Hugging Face folder
  int residual_shift = 0;              // the residual stream is divided by 2^this (models/residual.h)
  std::filesystem::path importance;    // what 4-bit scales are weighed with (convert/importance.h); empty: nothing
  bool replace = false;                // of a folder that exists
  Provenance provenance;               // what is filled in here wins over what the files tell
  std::function<void()> waiting;       // convert_once: called where another process makes the same model
  TextCheck check_text;                // asked before the first weight is written; its error ends the conversion
};

// What became of one weight.
struct TensorReport {
  std::string name;         // ours
  std::string source_type;  // "BF16", "Q4_K"
  std::vector<int64_t> shape;
  WeightFormat format = WeightFormat::f32;
  Layout layout = Layout::rows;
  double relative_rms = 0;   // of the stored weight against the published one
  double nf4_rounding = 0;   // nf4c: what the CPU's rounded levels add to true NF4
  bool codes_exact = false;  // taken over
  std::string why;           // where it is not the format that was asked for
  std::string altered;       // what a rule did to the published values (convert/weight_rules.h); empty: nothing
};

struct ConvertProgress {
  int64_t bytes_done = 0;  // of the weights file
  int64_t bytes_total = 0;
  int64_t bytes_kept = 0;                // of an interrupted run that is gone on with
  const TensorReport* tensor = nullptr;  // the weight that was just finished, else null
};
// Called after every piece; false stops the conversion, which can be gone on with later.
using ConvertObserver = std::function<bool(const ConvertProgress&)>;

struct ConvertSummary {
  std::filesystem::path folder;
  int64_t bytes = 0;
  std::vector<TensorReport> tensors;  // those of a kept run included
  std::vector<std::string> unused;    // tensors of the source that no weight uses
  std::string mtp_left_out = {};      // why the layer that config.json declares for drafting is not there
};

// Errors: those of the readers, usage where `out` exists, no_space, io, cancelled, numerics (a published weight that is
// not finite), unsupported (a residual shift that the family cannot take), and what check_text says. Whatever goes
// wrong, `out` does not exist then; and nothing is left beside it where no weight was written.
Result<ConvertSummary> convert(const std::filesystem::path& source, const std::filesystem::path& out,
                               const ConvertOptions& options, const ConvertObserver& observer = {});

struct PublishedFacts {
  std::string family;
  int64_t weights = 0;  // of ours, each with its tensor in the files
  int64_t bytes = 0;    // of those tensors
};

// What convert would refuse before it writes: headers, tensors against the config, the text side. Nothing is kept.
// Errors: as of convert.
Result<PublishedFacts> check_published(const std::filesystem::path& source, const TextCheck& check_text);

// "layers.0.attn.q  BF16 -> q4g64 tiles [576, 576]  error 0.0712": the line that the commands print.
std::string to_line(const TensorReport& report);

}  // namespace onw
