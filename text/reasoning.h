// Splits a streamed answer into its reasoning and its content.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace onw {

struct ReasoningTags {
  std::string open, close;
};

// The tags that a chat template writes around a thought; nothing where it knows none.
std::optional<ReasoningTags> reasoning_tags(std::string_view template_source);

// Whether the prompt ends within a thought, so that the answer begins there: some templates write the opening tag.
bool begins_in_reasoning(std::string_view prompt, const ReasoningTags& tags);

// An answer may begin with one thought. The tags and the newlines beside them belong to neither part. A closing tag
// without an opening one ends a thought that began unseen: what was content so far was reasoning.
class ReasoningSplitter {
 public:
  struct Parts {
    std::string reasoning, content;
    bool content_was_reasoning = false;  // everything given as content before this
  };

  ReasoningSplitter(ReasoningTags tags, bool begins_in_reasoning);
  Parts push(std::string_view text);
  Parts finish();  // an unfinished tag is text of the part that it stands in

 private:
  enum class State { start, reasoning, content };
  Parts advance(bool last);
  bool step(bool last, Parts& parts);
  bool step_start(bool last);
  void show(std::string text, Parts& parts);

  ReasoningTags tags_;
  State state_;
  bool closed_ = false;   // a thought has ended
  bool at_begin_ = true;  // of the part: newlines are dropped
  std::string pending_;
  std::string newlines_;  // of the reasoning, dropped if its end follows
};

}  // namespace onw
