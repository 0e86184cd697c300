#include "runtime/prompt_lookup.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace onw {
namespace {

constexpr int32_t kBreak = -1;         // between conversations: no token, so no match crosses it
constexpr int64_t kCursorTokens = 64;  // of a conversation that are followed through an earlier text

// How sure a match is, by its length, with the chance that its next token is right: about what SmolLM2 gives on edits.
struct Grade {
  int32_t least_match;
  double chance;
};
constexpr Grade kGrades[] = {{PromptLookup::kLeastMatch, 0.25}, {3, 0.4}, {5, 0.6}, {9, 0.75}, {17, 0.85}};

int grade_of(int32_t match) {
  int grade = 0;
  while (grade + 1 < static_cast<int>(std::size(kGrades)) && match >= kGrades[grade + 1].least_match) ++grade;
  return grade;
}

}  // namespace

void LookupText::append(int32_t token) {
  if (static_cast<int64_t>(tokens_.size()) >= most_tokens_) {
    tokens_.erase(tokens_.begin(), tokens_.end() - most_tokens_ / 2);
    automaton_ = {};
    for (const int32_t kept : tokens_) automaton_.append(kept);
    ++generation_;
  }
  tokens_.push_back(token);
  automaton_.append(token);
}

void LookupText::go_on(int32_t end, int count, std::vector<int32_t>& out) const {
  for (int i = 0; i < count; ++i) {
    const size_t at = static_cast<size_t>(end) + static_cast<size_t>(i);
    out.push_back(at < tokens_.size() ? tokens_[at] : out[at - tokens_.size()]);
  }
}

void EarlierText::add(std::span<const TokenKey> conversation) {
  for (const TokenKey& key : conversation) text_.append(key.token);
  text_.append(kBreak);
}

int PromptLookup::grades() const { return static_cast<int>(std::size(kGrades)); }

// Takes in what is new of the conversation, its last tokens where it is long.
void PromptLookup::follow(std::span<const TokenKey> conversation) {
  const auto total = static_cast<int64_t>(conversation.size());
  int64_t at = std::max(seen_, total - text_.most_tokens());
  if (earlier_ != nullptr && generation_ != earlier_->text().generation()) {
    cursor_ = {};
    generation_ = earlier_->text().generation();
    for (int64_t i = std::max<int64_t>(0, at - kCursorTokens); i < at; ++i)
      earlier_->text().automaton().advance(cursor_, conversation[static_cast<size_t>(i)].token);
  }
  for (; at < total; ++at) {
    const int32_t token = conversation[static_cast<size_t>(at)].token;
    text_.append(token);
    if (earlier_ != nullptr) earlier_->text().automaton().advance(cursor_, token);
  }
  seen_ = total;
}

Draft PromptLookup::propose(std::span<const TokenKey> conversation, int most) {
  follow(conversation);
  const LookupText* text = &text_;
  SuffixAutomaton::Match match = text_.automaton().repeated();
  if (earlier_ != nullptr) {
    const auto there = earlier_->text().automaton().at(cursor_);
    if (there.length > match.length) {  // else this conversation knows its own words best
      match = there;
      text = &earlier_->text();
    }
  }
  if (match.length < kLeastMatch) return {};
  Draft draft{.grade = grade_of(match.length)};
  draft.chance = kGrades[draft.grade].chance;
  text->go_on(match.end, most, draft.tokens);
  draft.tokens.erase(std::ranges::find(draft.tokens, kBreak), draft.tokens.end());
  return draft;
}

}  // namespace onw
