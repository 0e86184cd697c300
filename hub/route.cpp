#include "hub/route.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace onw {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

// "Uses proxy env variable HTTPS_PROXY == 'http://name:password@proxy:3128'"; a redirect chooses anew.
void Route::hear(std::string_view line) {
  constexpr std::string_view kUses = "Uses proxy env variable ";
  if (line.starts_with("Issue another request")) *this = {};
  if (!line.starts_with(kUses)) return;
  line.remove_prefix(kUses.size());
  const auto equals = line.find(" == '");
  if (equals == line.npos) return;
  std::string_view variable = line.substr(0, equals);
  const auto value = line.substr(equals + 5);
  if (variable == "no_proxy" || variable == "NO_PROXY") return;
  variable_ = std::string(variable);
  proxy_ = without_secrets(value.substr(0, value.rfind('\'')));
}

std::string Route::text() const {
  if (through_proxy()) return fmt::format("through the proxy {} ({})", proxy_, variable_);
  constexpr std::array kVariables = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
  const bool any = std::ranges::any_of(kVariables, is_set);
  if (any && (is_set("NO_PROXY") || is_set("no_proxy"))) return "directly (as NO_PROXY says)";
  return any ? "directly (the proxy that is set is for other addresses)" : "directly (no proxy is set)";
}

std::string without_secrets(std::string_view text) {
  constexpr std::string_view kBetweenWords = " '\"";
  std::string out;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_of(kBetweenWords), text.size() - 1) + 1;
    auto word = text.substr(0, end);
    if (const auto at = word.rfind('@'); at != word.npos) {
      const auto scheme = word.substr(0, at).find("://");
      if (scheme != word.npos) out += word.substr(0, scheme + 3);
      word.remove_prefix(at + 1);
    }
    out += word;
    text.remove_prefix(end);
  }
  return out;
}

}  // namespace onw
