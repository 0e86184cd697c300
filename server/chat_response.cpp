#include "server/chat_response.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>

namespace onw::server {
namespace {

using nlohmann::ordered_json;

constexpr char kFingerprint[] = "onw";

std::string dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string frame(const ordered_json& value) { return "data: " + dump(value) + "\n\n"; }

ordered_json usage_json(const UsageTotals& usage) {
  ordered_json json = {{"prompt_tokens", usage.prompt_tokens},
                       {"completion_tokens", usage.completion_tokens},
                       {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                       {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                       {"completion_tokens_details",
                        {{"reasoning_tokens", usage.reasoning_tokens},
                         {"drafted_tokens", usage.drafted_tokens},
                         {"accepted_draft_tokens", usage.accepted_tokens}}}};
  if (usage.mtp_drafted_tokens > 0) {
    json["completion_tokens_details"]["mtp_drafted_tokens"] = usage.mtp_drafted_tokens;
    json["completion_tokens_details"]["mtp_accepted_draft_tokens"] = usage.mtp_accepted_tokens;
  }
  return json;
}

ordered_json token_json(const TokenText& token) {
  std::vector<int> bytes;
  for (const char c : token.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token.text}, {"logprob", token.logprob}, {"bytes", bytes}};
}

ordered_json logprobs_json(const std::vector<TokenTexts>& tokens) {
  ordered_json content = ordered_json::array();
  for (const auto& entry : tokens) {
    ordered_json token = token_json(entry.token);
    token["top_logprobs"] = ordered_json::array();
    for (const auto& rival : entry.top) token["top_logprobs"].push_back(token_json(rival));
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

ordered_json chunk(const ResponseHead& head, ordered_json choices, bool with_usage) {
  ordered_json c = {{"id", head.id},       {"object", "chat.completion.chunk"},  {"created", head.created},
                    {"model", head.model}, {"system_fingerprint", kFingerprint}, {"choices", std::move(choices)}};
  if (with_usage) c["usage"] = nullptr;
  return c;
}

ordered_json one_choice(int index, ordered_json delta, ordered_json logprobs, ordered_json reason) {
  return ordered_json::array({{{"index", index},
                               {"delta", std::move(delta)},
                               {"logprobs", std::move(logprobs)},
                               {"finish_reason", std::move(reason)}}});
}

}  // namespace

std::string new_response_id() {
  std::random_device device;
  return fmt::format("chatcmpl-{:08x}{:08x}{:08x}", device(), device(), device());
}

std::string first_chunk(const ResponseHead& head, int choice, bool with_usage) {
  return frame(chunk(head, one_choice(choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr), with_usage));
}

std::string delta_chunk(const ResponseHead& head, int choice, const ChoiceDelta& delta, bool with_usage) {
  ordered_json d = ordered_json::object();
  if (!delta.reasoning.empty()) d["reasoning_content"] = delta.reasoning;
  if (!delta.content.empty()) d["content"] = delta.content;
  const ordered_json logprobs = delta.logprobs.empty() ? ordered_json() : logprobs_json(delta.logprobs);
  return frame(chunk(head, one_choice(choice, std::move(d), logprobs, nullptr), with_usage));
}

std::string finish_chunk(const ResponseHead& head, int choice, const std::string& reason, bool with_usage) {
  return frame(chunk(head, one_choice(choice, ordered_json::object(), nullptr, reason), with_usage));
}

std::string usage_chunk(const ResponseHead& head, const UsageTotals& usage) {
  auto c = chunk(head, ordered_json::array(), true);
  c["usage"] = usage_json(usage);
  return frame(c);
}

std::string error_frame(const std::string& error_json) { return "data: " + error_json + "\n\n"; }

std::string whole_answer(const ResponseHead& head, const std::vector<WholeChoice>& choices, const UsageTotals& usage,
                         bool logprobs) {
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    const auto& choice = choices[i];
    ordered_json message = {{"role", "assistant"}, {"content", choice.content}, {"refusal", nullptr}};
    if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
    list.push_back({{"index", i},
                    {"message", std::move(message)},
                    {"logprobs", logprobs ? logprobs_json(choice.logprobs) : ordered_json()},
                    {"finish_reason", choice.finish_reason}});
  }
  return dump({{"id", head.id},
               {"object", "chat.completion"},
               {"created", head.created},
               {"model", head.model},
               {"system_fingerprint", kFingerprint},
               {"choices", std::move(list)},
               {"usage", usage_json(usage)}});
}

}  // namespace onw::server
