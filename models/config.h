// Reading config.json: every dialect of keys that published folders use, one accessor per idea.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/program.h"

namespace onw {

using Json = nlohmann::json;

// The text part: config["text_config"] where there is one, else config itself. A null counts as absent everywhere
// below; a value of another type than asked for counts as absent too, and is remembered: whoever has read all that it
// needs asks for the fault (build_program does, for every family).
class Config {
 public:
  explicit Config(const Json& config);

  // The first key with a value of another type than was asked for. Errors: bad_format, with key, value and type.
  Result<void> fault() const;
  // Other fields in place of these. What is found wrong with them is a fault of this config.
  Config with(Json fields) const;

  // Integers of a dimension: present, positive and at most 2^31. Errors: bad_format naming the key.
  Result<int64_t> dimension(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t otherwise) const;
  double number(std::string_view key, double otherwise) const;
  bool boolean(std::string_view key, bool otherwise) const;
  std::string text(std::string_view key, std::string_view otherwise) const;
  bool has(std::string_view key) const;
  std::vector<std::string> strings(std::string_view key) const;  // empty where absent
  std::vector<int64_t> integers(std::string_view key) const;     // empty where absent
  const Json& json() const { return *config_; }

  // Rotary frequencies of rotary width r for a layer kind ("full_attention", "sliding_attention" or "" where all are
  // alike), from rope_parameters (flat or keyed by kind) or rope_theta + rope_scaling. `theta` holds where the config
  // names none. Types: default, linear, llama3, yarn, proportional, and factors (frequencies divided one by one, as
  // GGUF files do). Errors: unsupported for other types, bad_format for missing parameters.
  Result<RopeTable> rope(std::string_view name, std::string_view kind, int64_t r, double theta) const;

  // A rotary table's own parameters, with rope_type, rope_theta and original_max_position_embeddings filled in.
  Config rope_parameters(std::string_view kind, double theta) const;

 private:
  const Json* find(std::string_view key) const;
  const Json* object(std::string_view key) const;
  void note(std::string_view key, const Json& found, std::string_view expected) const;

  std::string inside_;  // "rope_scaling.", before the keys of a part
  std::shared_ptr<Json> config_;
  std::shared_ptr<Result<void>> fault_;  // of this and all that come from it
};

}  // namespace onw
