// The JSON of answers: whole ones, and the chunks of streams. One accumulates what the other sends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/generate.h"

namespace onw::server {

struct ResponseHead {
  std::string id;  // "chatcmpl-..."
  std::string model;
  int64_t created = 0;  // seconds since 1970
};

// One token with its likely rivals, as text.
struct TokenText {
  std::string text;   // mended where it is part of a character
  std::string bytes;  // as they are
  float logprob = 0;
};
struct TokenTexts {
  TokenText token;
  std::vector<TokenText> top;
};

// What one step adds to one choice.
struct ChoiceDelta {
  std::string content;
  std::string reasoning;
  std::vector<TokenTexts> logprobs;
};

struct UsageTotals {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;  // of all choices
  int64_t reasoning_tokens = 0;
  int64_t drafted_tokens = 0;      // guessed ahead by the engine
  int64_t accepted_tokens = 0;     // of them, those that are in the answers
  int64_t mtp_drafted_tokens = 0;  // of the drafted ones, those by the model's own layer for it
  int64_t mtp_accepted_tokens = 0;
};

// A choice of a whole answer: the sum of its deltas.
struct WholeChoice {
  std::string content;
  std::string reasoning;
  std::vector<TokenTexts> logprobs;
  std::string finish_reason;
};

std::string new_response_id();

// "data: ...\n\n" frames of a stream.
std::string first_chunk(const ResponseHead& head, int choice, bool with_usage);
std::string delta_chunk(const ResponseHead& head, int choice, const ChoiceDelta& delta, bool with_usage);
std::string finish_chunk(const ResponseHead& head, int choice, const std::string& reason, bool with_usage);
std::string usage_chunk(const ResponseHead& head, const UsageTotals& usage);
std::string error_frame(const std::string& error_json);
inline constexpr char kDoneFrame[] = "data: [DONE]\n\n";
inline constexpr char kKeepAliveFrame[] = ": still working\n\n";

// The whole answer. `logprobs`: they were asked for.
std::string whole_answer(const ResponseHead& head, const std::vector<WholeChoice>& choices, const UsageTotals& usage,
                         bool logprobs);

}  // namespace onw::server
