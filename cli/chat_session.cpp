#include "cli/chat_session.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace onw::cli {

using nlohmann::ordered_json;

void Running::set(Generation* generation) {
  const std::lock_guard lock(mutex_);
  if (generation != nullptr) stopped_ = false;
  generation_ = generation;
}

bool Running::stop() {
  const std::lock_guard lock(mutex_);
  if (generation_ == nullptr || stopped_) return false;
  stopped_ = true;
  generation_->cancel();
  return true;
}

bool Running::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

ChatSession::ChatSession(server::ServedModel& model, ChatSettings settings, Running& running, Sink content,
                         Sink reasoning)
    : model_(model),
      settings_(std::move(settings)),
      running_(running),
      content_(std::move(content)),
      reasoning_(std::move(reasoning)) {
  clear();
}

ChatSession::~ChatSession() = default;

void ChatSession::clear() {
  messages_ = std::make_unique<ordered_json>(ordered_json::array());
  if (!settings_.system.empty()) messages_->push_back({{"role", "system"}, {"content", settings_.system}});
}

Result<ChatSession::Prompt> ChatSession::prompt_for(const std::string& message) const {
  if (!model_.chat_template) {
    auto encoding = model_.tokenizer.encode(message, {.bos = model_.tokenizer.adds_bos()});
    RETURN_IF_ERROR(encoding);
    return Prompt{{message, std::move(*encoding)}, {}};
  }
  ordered_json messages = *messages_;
  messages.push_back({{"role", "user"}, {"content", message}});
  const ordered_json request = {{"messages", std::move(messages)}, {"enable_thinking", settings_.think}};
  const auto text = request.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  auto chat = model_.tokenizer.encode_chat(*model_.chat_template, text, model_.engine->info().context_tokens);
  RETURN_IF_ERROR(chat);
  auto branches = model_.branch_points(text, *chat);
  return Prompt{std::move(*chat), std::move(branches)};
}

Result<Spoken> ChatSession::say(const std::string& message) {
  auto prompt = prompt_for(message);
  RETURN_IF_ERROR(prompt);
  auto spoken = answer(std::move(*prompt));
  RETURN_IF_ERROR(spoken);
  if (model_.chat_template) {
    messages_->push_back({{"role", "user"}, {"content", message}});
    messages_->push_back({{"role", "assistant"}, {"content", spoken->content}});
  }
  return spoken;
}

Result<Spoken> ChatSession::answer(Prompt prompt) {
  server::AnswerText text(model_.tokenizer, model_.style, {}, prompt.chat.text);
  GenerateRequest request;
  request.prompt = std::move(prompt.chat.encoding.ids);
  request.branch_points = std::move(prompt.branch_points);
  request.sampling = settings_.sampling;
  request.max_tokens = settings_.max_tokens;
  request.stop_ids = model_.stop_ids;
  auto generation = model_.engine->submit(std::move(request));
  RETURN_IF_ERROR(generation);
  running_.set(generation->get());
  Spoken spoken;
  Result<void> told;
  const auto tell = [&](Result<server::TextDelta> delta) -> Result<void> {
    RETURN_IF_ERROR(delta);
    spoken.content += delta->content;
    if (!delta->reasoning.empty()) RETURN_IF_ERROR(reasoning_(delta->reasoning));
    if (!delta->content.empty()) RETURN_IF_ERROR(content_(delta->content));
    return {};
  };
  while (auto event = (*generation)->next()) {
    if (event->id >= 0 && event->finish != FinishReason::stop) told = tell(text.push(event->id));
    if (event->finish == FinishReason::error && event->error) told = Failure(std::move(*event->error));
    spoken.usage = event->usage;
    spoken.finish = event->finish;
    if (!told) break;
  }
  if (told) told = tell(text.finish());
  running_.set(nullptr);
  RETURN_IF_ERROR(told);
  return spoken;
}

std::string speeds_text(const Usage& usage) {
  const auto computed = usage.prompt_tokens - usage.reused_tokens;
  std::string text = fmt::format("prompt {} tokens", computed);
  if (usage.reused_tokens > 0) text += fmt::format(" (and {} known)", usage.reused_tokens);
  if (usage.prefill_tokens_per_s() > 0) text += fmt::format(" at {:.0f}/s", usage.prefill_tokens_per_s());
  text += fmt::format(", answer {} tokens", usage.completion_tokens);
  if (usage.decode_tokens_per_s() > 0) text += fmt::format(" at {:.1f}/s", usage.decode_tokens_per_s());
  if (usage.drafted_tokens > 0)
    text += fmt::format(", drafts {} of {} right ({:.0f} %)", usage.accepted_tokens, usage.drafted_tokens,
                        100 * usage.acceptance());
  if (usage.mtp_drafted_tokens > 0)
    text += fmt::format(", of them {} of {} by the MTP layer", usage.mtp_accepted_tokens, usage.mtp_drafted_tokens);
  return text;
}

}  // namespace onw::cli
