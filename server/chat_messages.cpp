#include "server/chat_messages.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "server/field_reader.h"
#include "server/json_slices.h"

namespace onw::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMaxTextBytes = 4 << 20;  // of one string, as the tokenizer takes it
constexpr size_t kMaxMessages = 4096;      // a template walks them all, more than once
constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

tl::unexpected<ApiError> refusal(const std::string& param, std::string message) {
  return tl::unexpected(ApiError{.message = fmt::format("{}: {}", param, message), .param = param});
}

// The text of a content that comes in parts.
ApiResult<std::string> joined_parts(const json& parts, const std::string& where) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const json& part = parts[i];
    const auto at = fmt::format("{}[{}]", where, i);
    if (!part.is_object()) return refusal(at, fmt::format("must be an object, is {}", kind_of(part)));
    const std::string type = part.contains("type") && part["type"].is_string() ? part["type"].get<std::string>() : "";
    if (type != "text" && type != "refusal")
      return refusal(at + ".type", fmt::format("'{}' cannot be read: this model takes text only", shortened(type)));
    if (!part.contains(type) || !part[type].is_string())
      return refusal(fmt::format("{}.{}", at, type), "must be a string");
    if (i > 0) text += '\n';
    text += part[type].get_ref<const std::string&>();
  }
  return text;
}

ApiResult<std::optional<std::string>> content_of(const json& message, const std::string& where, bool may_lack) {
  const auto found = message.find("content");
  if (found == message.end() || found->is_null()) {
    if (may_lack) return std::optional<std::string>();
    return refusal(where, "is missing");
  }
  if (found->is_string()) return std::optional(found->get<std::string>());
  if (!found->is_array()) return refusal(where, fmt::format("must be a string or an array, is {}", kind_of(*found)));
  auto text = joined_parts(*found, where);
  if (!text) return tl::unexpected(std::move(text.error()));
  return std::optional(std::move(*text));
}

std::string json_string(std::string_view text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

// The message again, member by member, with another content and role.
std::string rewritten(std::string_view raw, const std::string& role, const std::optional<std::string>& content) {
  std::string out = "{\"role\":" + json_string(role);
  bool has_content = false;
  for (const auto& [key, value] : members(raw)) {
    if (key == "role" || (key == "content" && has_content)) continue;
    has_content = has_content || key == "content";
    out += fmt::format(",{}:{}", json_string(key),
                       key == "content" && content ? json_string(*content) : std::string(value));
  }
  return out + "}";
}

ApiResult<std::string> template_message(const json& message, std::string_view raw, const std::string& where) {
  if (!message.is_object()) return refusal(where, fmt::format("must be an object, is {}", kind_of(message)));
  if (const auto twice = repeated_key(raw))
    return refusal(where, fmt::format("has '{}' more than once: give it once", shortened(*twice)));
  const auto found = message.find("role");
  if (found == message.end() || !found->is_string()) return refusal(where + ".role", "must be a string");
  const auto role = found->get<std::string>();
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end())
    return refusal(where + ".role", fmt::format("'{}' is not one of {}", shortened(role), fmt::join(kRoles, ", ")));
  const bool calls = message.contains("tool_calls") && !message["tool_calls"].is_null();
  const auto content = content_of(message, where + ".content", role == "assistant" && calls);
  if (!content) return tl::unexpected(content.error());
  if (*content && (*content)->size() > kMaxTextBytes)
    return refusal(where + ".content",
                   fmt::format("has {} bytes, at most {} are taken", (*content)->size(), kMaxTextBytes));
  const bool plain = role != "developer" && (!*content || message["content"].is_string());
  return plain ? std::string(raw) : rewritten(raw, role == "developer" ? "system" : role, *content);
}

}  // namespace

ApiResult<std::string> template_messages(const json& messages, std::string_view raw) {
  if (!messages.is_array()) return refusal("messages", fmt::format("must be an array, is {}", kind_of(messages)));
  if (messages.empty()) return refusal("messages", "is empty: there is nothing to answer");
  if (messages.size() > kMaxMessages)
    return refusal("messages", fmt::format("has {} messages, at most {} are taken: leave out the oldest",
                                           messages.size(), kMaxMessages));
  const auto slices = elements(raw);
  if (slices.size() != messages.size()) return refusal("messages", "cannot be read");
  std::string out = "[";
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto message = template_message(messages[i], slices[i], fmt::format("messages[{}]", i));
    if (!message) return message;
    out += (i == 0 ? "" : ",") + *message;
  }
  return out + "]";
}

}  // namespace onw::server
