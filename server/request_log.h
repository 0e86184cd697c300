// One line per request for whoever runs the server. Nothing that was said is in it: no body, header, query or answer.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "server/http.h"

namespace onw::server {

// What a log tells of a generated answer.
struct AnswerNote {
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;
  int64_t completion_tokens = 0;   // of all choices
  double tokens_per_s = 0;         // of them, after the first of each; 0: not known
  std::string_view end;            // stop, length, cancelled or error; empty: cut before it ended
  std::string_view fault;          // of the server; empty: none
  int64_t drafted_tokens = 0;      // guessed ahead, of all choices
  int64_t accepted_tokens = 0;     // of them, those in the answers
  int64_t mtp_drafted_tokens = 0;  // of the drafted ones, those by the model's own layer for it
  int64_t mtp_accepted_tokens = 0;
};
std::string note_text(const AnswerNote& note);

// "2026-11-30T07:00:07Z POST /v1/chat/completions 200 742ms prompt=52 reused=48 tokens=31 tokens/s=42.1 end=stop\n".
// `now` is when the request was over. Whatever a client sent, it is one line of printable ASCII.
std::string log_line(const HttpRecord& record, std::time_t now);

}  // namespace onw::server
