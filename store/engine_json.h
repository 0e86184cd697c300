// engine.json: what onw knows of a converted model beside the published files.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/expert_records.h"
#include "store/weight_plan.h"

namespace onw {

inline constexpr int kEngineFormatVersion = 1;

// Sampling as the publisher recommends it (generation_config.json); what is absent is left to the caller.
struct GenerationDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  bool operator==(const GenerationDefaults&) const = default;
};

// Reads them under the names of generation_config.json, from that file or from engine.json. Errors: bad_format, where a
// value has another type or is out of range.
Result<GenerationDefaults> parse_generation(const nlohmann::json& object, std::string_view where);

struct Provenance {
  std::string source;    // the folder, file or id that was converted
  std::string revision;  // a commit, or the digest of a file; empty where unknown
  std::string command;
  std::string date;  // ISO 8601, UTC
  std::string licence;
  std::string onw_version;
  std::string source_key;  // of a file that was converted by being named: tells whether it is still the same
  bool operator==(const Provenance&) const = default;
};

struct FileDigest {
  int64_t bytes = 0;
  int64_t modified_ns = 0;  // the digest is trusted while size and modification time stay as they are
  std::string sha256;
  std::string sampled;  // sampled_digest()
  bool operator==(const FileDigest&) const = default;
};

struct EngineInfo {
  std::string family;
  int64_t layers = 0, hidden = 0, vocabulary = 0, max_context = 0;
  std::string made_for;              // cpu or npu
  std::vector<std::string> runs_on;  // devices that take the folder as it is
  std::vector<StoredWeight> weights;
  std::vector<ExpertRecords> experts;  // by layer
  std::vector<int64_t> stop_ids;       // the union of all sources, ascending
  GenerationDefaults generation;
  Provenance provenance;
  std::map<std::string, FileDigest> files;
};

nlohmann::json to_json(const EngineInfo& engine);

// `where` names the file in errors. Errors: bad_format; unsupported for a newer format version.
Result<EngineInfo> parse_engine(const nlohmann::json& root, std::string_view where);

}  // namespace onw
