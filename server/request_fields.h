// Every field of a chat completion that is known here, one row each: what is taken, within which limits, what is
// refused and what is ignored. The parser reads no field without a row; docs/server.md and its test come from the
// table.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "runtime/sampling_limits.h"

namespace onw::server {

inline constexpr int kMaxStops = 64;
inline constexpr Range kAnyCount{1, 9007199254740992.0};  // integers up to here are exact as double
inline constexpr Range kSeedRange{-9223372036854775808.0, 9223372036854775807.0};

enum class Treatment : uint8_t {
  honoured,
  refused,  // a known field that cannot be honoured is an error that names it
  ignored,  // it changes nothing that is answered
};

struct RequestField {
  std::string_view name;
  Treatment treatment = Treatment::honoured;
  std::string_view type;      // of honoured ones, for the documents; of refused ones the values that ask for nothing:
                              // JSON texts between bars
  std::string_view fallback;  // where it is absent
  std::string_view meaning;   // of refused ones: why
  Range range = {};           // of numbers
};

inline constexpr auto kRequestFields = std::to_array<RequestField>({
    {"messages", Treatment::honoured, "array", "", "the conversation; see below"},
    {"model", Treatment::honoured, "string", "whichever is loaded", "another name than that of the model is a 404"},
    {"max_tokens", Treatment::honoured, "integer", "to the end of the context", "tokens of an answer at most",
     kAnyCount},
    {"max_completion_tokens", Treatment::honoured, "integer", "", "the same; wins over max_tokens", kAnyCount},
    {"n", Treatment::honoured, "integer", "1", "answers to one prompt; at most --sessions", {1, 4096}},
    {"stop", Treatment::honoured, "string or array of strings", "",
     "ends an answer before it; at most 64, none of them empty"},
    {"stream", Treatment::honoured, "true or false", "false", "the answer as server-sent events, token by token"},
    {"stream_options", Treatment::honoured, "object", "", "needs stream"},
    {"stream_options.include_usage", Treatment::honoured, "true or false", "false", "a last event with the usage"},
    {"temperature", Treatment::honoured, "number", "the model's", "0 takes the likeliest token", kTemperatureRange},
    {"top_p", Treatment::honoured, "number", "the model's",
     "draws from the likeliest tokens that sum to it; for the likeliest alone: temperature 0", kTopPRange},
    {"top_k", Treatment::honoured, "integer", "the model's", "draws from so many of the likeliest; 0: all", kTopKRange},
    {"min_p", Treatment::honoured, "number", "the model's", "leaves out tokens below this share of the likeliest",
     kMinPRange},
    {"repetition_penalty", Treatment::honoured, "number", "the model's",
     "divides logits of tokens of the prompt and the answer", kRepetitionPenaltyRange},
    {"presence_penalty", Treatment::honoured, "number", "0", "taken off tokens of the answer, once",
     kPresencePenaltyRange},
    {"frequency_penalty", Treatment::honoured, "number", "0", "taken off tokens of the answer, per occurrence",
     kPresencePenaltyRange},
    {"logit_bias", Treatment::honoured, "object", "", "token id: what is added to its logit, from -100 to 100"},
    {"seed", Treatment::honoured, "integer", "random", "same seed, same answer, whatever runs beside it", kSeedRange},
    {"logprobs", Treatment::honoured, "true or false", "false", "the log-probability of each token"},
    {"top_logprobs", Treatment::honoured, "integer", "0", "and of so many of the likeliest; needs logprobs", {0, 20}},
    {"chat_template_kwargs", Treatment::honoured, "object", "",
     "variables of the model's chat template, such as enable_thinking; messages and add_generation_prompt are not to "
     "be set"},
    {"reasoning_effort", Treatment::honoured, "string", "",
     "the template's variable of that name; none also sets enable_thinking to false"},

    {"tools", Treatment::refused, "[]", "", "tool calls are not made yet"},
    {"functions", Treatment::refused, "[]", "", "functions are not called yet"},
    {"tool_choice", Treatment::refused, "\"none\"|\"auto\"", "", "tool calls are not made yet"},
    {"function_call", Treatment::refused, "\"none\"|\"auto\"", "", "functions are not called yet"},
    {"response_format", Treatment::refused, "{\"type\":\"text\"}", "", "only text can be answered yet"},
    {"modalities", Treatment::refused, "[\"text\"]", "", "only text can be answered"},
    {"audio", Treatment::refused, "", "", "only text can be answered"},
    {"prediction", Treatment::refused, "", "", "a predicted answer cannot be used yet"},
    {"web_search_options", Treatment::refused, "", "", "the server does not search the web"},
    {"verbosity", Treatment::refused, "\"medium\"", "", "the length of an answer cannot be asked for in words"},
    {"best_of", Treatment::refused, "1", "", "use n"},
    {"echo", Treatment::refused, "false", "", "only new text is answered"},
    {"store", Treatment::refused, "false", "", "answers are not stored"},
    {"background", Treatment::refused, "false", "", "answers are not stored"},

    {"user", Treatment::ignored, "", "", "nobody is told apart"},
    {"safety_identifier", Treatment::ignored, "", "", "nobody is told apart"},
    {"metadata", Treatment::ignored, "", "", "nothing is stored"},
    {"service_tier", Treatment::ignored, "", "", "there is one"},
    {"parallel_tool_calls", Treatment::ignored, "", "", "tool calls are not made yet"},
    {"prompt_cache_key", Treatment::ignored, "", "", "equal beginnings of prompts are always reused"},
    {"prompt_cache_retention", Treatment::ignored, "", "", "what memory allows is kept"},
    {"stream_options.include_obfuscation", Treatment::ignored, "", "", "nothing is padded"},
});

// The name of a field, checked against the table while compiling.
class FieldName {
 public:
  consteval FieldName(const char* name) : row_(find(name)) {}
  constexpr FieldName(const RequestField& row) : row_(&row) {}

  const RequestField& row() const { return *row_; }
  std::string_view name() const { return row_->name; }

 private:
  static consteval const RequestField* find(std::string_view name) {
    for (const auto& row : kRequestFields)
      if (row.name == name) return &row;
    throw "the table has no such field";  // ends the compilation
  }

  const RequestField* row_;
};

// The table as docs/server.md shows it.
std::string request_fields_markdown();

}  // namespace onw::server
