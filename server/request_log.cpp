#include "server/request_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace onw::server {
namespace {

constexpr size_t kMaxPathBytes = 200;
constexpr size_t kMaxFaultBytes = 500;

// Without what would break the line or speak to a terminal.
std::string printable(std::string_view text, size_t most, bool spaces) {
  std::string out;
  for (const char c : text.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte > 0x20 && byte < 0x7f && c != '"';
    if (plain || (spaces && c == ' '))
      out += c;
    else
      out += fmt::format("%{:02X}", byte);
  }
  return text.size() > most ? out + "..." : out;
}

}  // namespace

std::string note_text(const AnswerNote& note) {
  std::string text =
      fmt::format("prompt={} reused={} tokens={}", note.prompt_tokens, note.reused_tokens, note.completion_tokens);
  if (note.tokens_per_s > 0) text += fmt::format(" tokens/s={:.1f}", note.tokens_per_s);
  if (note.drafted_tokens > 0)
    text += fmt::format(" drafted={} accepted={}", note.drafted_tokens, note.accepted_tokens);
  if (note.mtp_drafted_tokens > 0)
    text += fmt::format(" mtp_drafted={} mtp_accepted={}", note.mtp_drafted_tokens, note.mtp_accepted_tokens);
  text += fmt::format(" end={}", note.end.empty() ? "cancelled" : note.end);
  if (!note.fault.empty()) text += fmt::format(" fault=\"{}\"", printable(note.fault, kMaxFaultBytes, true));
  return text;
}

std::string log_line(const HttpRecord& r, std::time_t now) {
  std::string line = fmt::format("{:%Y-%m-%dT%H:%M:%SZ} {} {} {} {:.0f}ms", fmt::gmtime(now),
                                 printable(r.method, kMaxPathBytes, false), printable(r.path, kMaxPathBytes, false),
                                 r.status == 0 ? std::string("-") : fmt::format("{}", r.status), r.seconds * 1000);
  if (!r.note.empty())
    line += " " + r.note;
  else if (!r.whole)
    line += " end=cancelled";
  return line + "\n";
}

}  // namespace onw::server
