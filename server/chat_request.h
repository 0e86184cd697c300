// A chat completion as a client asks for it, checked. Absent and null are the same; a known field that cannot be
// honoured is an error that names it; unknown fields are ignored.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/generate.h"
#include "server/api_error.h"

namespace onw::server {

// What a request may leave open.
struct RequestDefaults {
  SamplingParams sampling;  // as the publisher of the model recommends it
  int64_t vocabulary = 0;
  int max_choices = 32;
};

struct ChatRequest {
  std::string model;      // empty: whichever is loaded
  std::string variables;  // JSON object for the chat template: messages and whatever else it may look at
  SamplingParams sampling;
  int64_t max_tokens = -1;  // -1: as far as the context goes
  int choices = 1;
  int logprobs = -1;  // -1: none; n: each token's, and those of the n most likely
  std::vector<std::string> stops;
  bool stream = false;
  bool include_usage = false;  // a last chunk of a stream with the usage
};

ApiResult<ChatRequest> parse_chat_request(std::string_view body, const RequestDefaults& defaults);

}  // namespace onw::server
