// Ends a streamed text before a stop string, however the text comes in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onw {

// Of several stops the one that is complete first wins, the longest of those that end together. What push() returns
// never holds the beginning of a stop that follows. Empty stops are ignored.
class StopFilter {
 public:
  // `tags` are passed on whole and never looked into: "</think>" goes to the reasoning splitter though "<" is a stop.
  explicit StopFilter(std::vector<std::string> stops, std::vector<std::string> tags = {});

  // The part of the text so far that can be shown now. Nothing after a stop.
  std::string push(std::string_view text);
  std::string finish();

  bool stopped() const { return stopped_; }
  const std::string& stop() const { return stop_; }  // which one

 private:
  enum class Next { take, wait, tag };
  Next look_for_tag(std::string_view rest, bool last, size_t& tag_size) const;
  void take_byte(char c, std::string& shown);
  std::string advance(bool last);

  std::vector<std::string> stops_, tags_;
  std::string pending_;  // not looked at yet: may begin a tag
  std::string held_;     // may begin a stop
  std::string stop_;
  bool stopped_ = false;
};

}  // namespace onw
