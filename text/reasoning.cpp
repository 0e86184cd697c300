#include "text/reasoning.h"

#include <algorithm>
#include <array>
#include <utility>

namespace onw {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

// Where a match of `tag` in `text` begins or may begin at its end; npos where neither.
size_t find_tag(std::string_view text, std::string_view tag) {
  for (size_t at = text.find(tag.front()); at != text.npos; at = text.find(tag.front(), at + 1))
    if (const auto rest = text.substr(at); rest.starts_with(tag) || tag.starts_with(rest)) return at;
  return text.npos;
}

}  // namespace

std::optional<ReasoningTags> reasoning_tags(std::string_view template_source) {
  static const std::array<ReasoningTags, 3> kKnown = {
      ReasoningTags{"<think>", "</think>"},
      ReasoningTags{"<|channel>thought\n", "<channel|>"},
      ReasoningTags{"[THINK]", "[/THINK]"},
  };
  for (const ReasoningTags& tags : kKnown) {
    const std::string_view word = std::string_view(tags.open).substr(0, tags.open.find_last_not_of('\n') + 1);
    if (template_source.find(word) != template_source.npos || template_source.find(tags.close) != template_source.npos)
      return tags;
  }
  return std::nullopt;
}

bool begins_in_reasoning(std::string_view prompt, const ReasoningTags& tags) {
  const auto trimmed = [](std::string_view text) { return text.substr(0, text.find_last_not_of(kSpaces) + 1); };
  return trimmed(prompt).ends_with(trimmed(tags.open));
}

ReasoningSplitter::ReasoningSplitter(ReasoningTags tags, bool begins_in_reasoning)
    : tags_(std::move(tags)), state_(begins_in_reasoning ? State::reasoning : State::start) {}

ReasoningSplitter::Parts ReasoningSplitter::push(std::string_view text) {
  pending_ += text;
  return advance(/*last=*/false);
}

ReasoningSplitter::Parts ReasoningSplitter::finish() {
  Parts parts = advance(/*last=*/true);
  if (state_ == State::reasoning) parts.reasoning += std::exchange(newlines_, {});
  return parts;
}

ReasoningSplitter::Parts ReasoningSplitter::advance(bool last) {
  Parts parts;
  while (!pending_.empty() && step(last, parts)) {
  }
  return parts;
}

// One decision about the pending text; false where more of it must come first.
bool ReasoningSplitter::step(bool last, Parts& parts) {
  if (state_ == State::start) return step_start(last);
  const size_t close = closed_ ? std::string::npos : find_tag(pending_, tags_.close);
  show(pending_.substr(0, close), parts);
  pending_.erase(0, close);
  if (pending_.empty()) return false;
  if (!pending_.starts_with(tags_.close)) {
    if (!last) return false;
    show(std::exchange(pending_, {}), parts);
    return false;
  }
  if (state_ == State::content) {
    parts.reasoning += std::exchange(parts.content, {});
    parts.content_was_reasoning = true;
  }
  pending_.erase(0, tags_.close.size());
  newlines_.clear();
  state_ = State::content;
  at_begin_ = closed_ = true;
  return true;
}

bool ReasoningSplitter::step_start(bool last) {
  const size_t begin = pending_.find_first_not_of(kSpaces);
  const std::string_view rest = begin == pending_.npos ? std::string_view() : std::string_view(pending_).substr(begin);
  if (rest.starts_with(tags_.open)) {
    pending_.erase(0, begin + tags_.open.size());
    state_ = State::reasoning;
    return true;
  }
  if (!last && tags_.open.starts_with(rest)) return false;
  state_ = State::content;
  at_begin_ = false;
  return true;
}

void ReasoningSplitter::show(std::string text, Parts& parts) {
  if (at_begin_) text.erase(0, text.find_first_not_of('\n'));
  if (text.empty()) return;
  at_begin_ = false;
  if (state_ == State::content) {
    parts.content += text;
    return;
  }
  const size_t end = text.find_last_not_of('\n') + 1;
  if (end > 0) parts.reasoning += std::exchange(newlines_, {}) + text.substr(0, end);
  newlines_ += text.substr(end);
}

}  // namespace onw
