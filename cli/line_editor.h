// Lines typed by a person, with editing and history on a terminal; plain lines elsewhere.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace onw::cli {

class LineEditor {
 public:
  // History is read from and added to `history_file`.
  explicit LineEditor(std::filesystem::path history_file);
  ~LineEditor();

  // One message: a line; several where a line ends with a backslash; or everything between two lines of """.
  // Empty at the end of the input (Ctrl-D), and after an interrupt.
  std::optional<std::string> read(const std::string& prompt);

  // On a terminal, until something is typed, `waits` is asked some times a second whether there are lines to show.
  void while_nothing_is_typed(std::function<bool()> waits, std::function<void()> show);

 private:
  struct State;
  std::optional<std::string> read_line(const std::string& prompt);
  void wait_for_typing(const std::string& prompt);
  std::unique_ptr<State> state_;
};

// How lines become a message, for LineEditor and tests.
class MessageLines {
 public:
  // False when the message is whole.
  bool add(std::string line);
  std::string take();
  bool empty() const { return !block_ && text_.empty(); }

 private:
  std::string text_;
  bool block_ = false;
};

}  // namespace onw::cli
