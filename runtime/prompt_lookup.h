// Drafts from what was said before: the longest end of the conversation that occurred earlier goes on as it did then.
// Answers that quote, edit or count on what they were given are full of that. Saxena, "Prompt Lookup Decoding" (2023)
// looks n tokens back; a suffix automaton finds the longest match, and its length says how sure to be.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/drafter.h"
#include "runtime/suffix_automaton.h"

namespace onw {

// A text that grows at its end and, once it is `most_tokens` long, loses the older half: memory stays bounded, and so
// does the time to append on average.
class LookupText {
 public:
  explicit LookupText(int64_t most_tokens) : most_tokens_(most_tokens) {}

  void append(int32_t token);
  int64_t most_tokens() const { return most_tokens_; }
  const SuffixAutomaton& automaton() const { return automaton_; }
  uint64_t generation() const { return generation_; }  // counts losses, after which positions and cursors are void
  int64_t bytes() const { return automaton_.bytes() + static_cast<int64_t>(tokens_.capacity() * sizeof(int32_t)); }

  // `count` tokens from `end` on; what lies beyond the text's end is what it would repeat from there.
  void go_on(int32_t end, int count, std::vector<int32_t>& out) const;

 private:
  int64_t most_tokens_;
  std::vector<int32_t> tokens_;
  SuffixAutomaton automaton_;
  uint64_t generation_ = 0;
};

// Earlier conversations, for those who ask for them. Belongs to the engine thread.
class EarlierText {
 public:
  static constexpr int64_t kMostTokens = 65536;  // 8 MB at most
  explicit EarlierText(int64_t most_tokens = kMostTokens) : text_(most_tokens) {}
  void add(std::span<const TokenKey> conversation);
  const LookupText& text() const { return text_; }

 private:
  LookupText text_;
};

class PromptLookup final : public Drafter {
 public:
  static constexpr int64_t kMostTokens = 32768;  // of a conversation that are looked at: 4 MB at most
  static constexpr int32_t kLeastMatch = 2;      // one token is followed by anything

  // `earlier` may be null.
  explicit PromptLookup(std::shared_ptr<const EarlierText> earlier = {}, int64_t most_tokens = kMostTokens)
      : text_(most_tokens), earlier_(std::move(earlier)) {}

  std::string_view name() const override { return "lookup"; }
  int grades() const override;
  Draft propose(std::span<const TokenKey> conversation, int most) override;

 private:
  void follow(std::span<const TokenKey> conversation);

  LookupText text_;
  std::shared_ptr<const EarlierText> earlier_;
  int64_t seen_ = 0;  // tokens of the conversation
  SuffixAutomaton::Cursor cursor_;
  uint64_t generation_ = 0;  // of the earlier text, that the cursor is of
};

}  // namespace onw
