// Which tokens end an answer: the union of every source that names one (MODELS: 1.9).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>

#include "base/result.h"

namespace onw {

// The added tokens of a tokenizer.json, by their text. The rest of the file is not kept in memory.
Result<std::map<std::string, int64_t>> added_tokens(const std::filesystem::path& tokenizer_json);

struct StopSources {
  const nlohmann::json* generation_config = nullptr;  // eos_token_id
  const nlohmann::json* config = nullptr;             // eos_token_id, text_config.eos_token_id
  const nlohmann::json* tokenizer_config = nullptr;   // eos_token (a string, or an object with "content")
  std::string_view chat_template;                     // turn ends that it writes
  const std::map<std::string, int64_t>* tokens = nullptr;
};

// Errors: bad_format for an eos_token_id that is neither a whole number nor a list of them, or an eos_token that is no
// text.
Result<std::set<int64_t>> collect_stop_ids(const StopSources& sources);

// The strings that end a turn in some family: one counts where the template writes it and the vocabulary has it.
bool is_turn_end(std::string_view token);

// The text of the chat template: chat_template.jinja, chat_template.json, or tokenizer_config.json, in this order; of
// several named ones the default. Empty where there is none.
std::string read_chat_template(const std::filesystem::path& folder, const nlohmann::json& tokenizer_config);

}  // namespace onw
