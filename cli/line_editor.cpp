#include "cli/line_editor.h"

#include <histedit.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <utility>

#include "base/result.h"
#include "base/terminal.h"
#include "cli/output.h"

namespace onw::cli {
namespace {

constexpr int kHistoryLines = 1000;
constexpr char kBlock[] = "\"\"\"";

// What libedit's callbacks are given.
struct Typing {
  std::string prompt;
  bool within = false;   // a message of several lines, after the first
  bool dropped = false;  // the whole message
};

Typing& typing_of(EditLine* editor) {
  void* data = nullptr;
  el_get(editor, EL_CLIENTDATA, &data);
  return *static_cast<Typing*>(data);
}

char* prompt_of(EditLine* editor) { return typing_of(editor).prompt.data(); }

// Ctrl-C at the prompt: what was typed goes, all lines of it; on an empty line the second one ends.
unsigned char on_interrupt(EditLine* editor, int) {
  static bool warned = false;
  if (Typing& typing = typing_of(editor); typing.within) {
    typing.dropped = true;
    std::fputs("^C\n", stderr);
    return CC_EOF;
  }
  const LineInfo* line = el_line(editor);
  const auto length = static_cast<int>(line->lastchar - line->buffer);
  if (length == 0 && warned) return CC_EOF;
  warned = length == 0;
  el_cursor(editor, static_cast<int>(line->lastchar - line->cursor));
  el_deletestr(editor, length);
  std::fputs(warned ? "^C\nCtrl-C once more ends\n" : "^C\n", stderr);
  return CC_REDISPLAY;
}

// Whole or not at all: a full disk, or an end in the middle, leaves the history of before.
Result<void> save(History* history_lines, const std::filesystem::path& file) {
  const std::filesystem::path fresh = file.string() + ".new";
  HistEvent event;
  std::FILE* out = std::fopen(fresh.c_str(), "w");
  bool whole = out != nullptr && history(history_lines, &event, H_SAVE_FP, out) >= 0 && std::ferror(out) == 0;
  if (out != nullptr) whole = std::fclose(out) == 0 && whole;
  const int why = errno;
  std::error_code failed;
  if (whole) std::filesystem::rename(fresh, file, failed);
  if (whole && !failed) return {};
  std::error_code ignored;
  std::filesystem::remove(fresh, ignored);
  return error(Code::io, "cannot write {}: {}", file.string(), whole ? failed.message() : std::strerror(why));
}

// libedit reads characters by the locale; only that part of it is taken, so that numbers stay as they are.
void use_utf8() {
  const char* taken = std::setlocale(LC_CTYPE, "");
  if (taken == nullptr || std::strcmp(taken, "C") == 0 || std::strcmp(taken, "POSIX") == 0)
    std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

bool MessageLines::add(std::string line) {
  if (block_) {
    if (line == kBlock) {
      block_ = false;
      if (!text_.empty()) text_.pop_back();
      return false;
    }
    text_ += line + "\n";
    return true;
  }
  if (text_.empty() && line == kBlock) return block_ = true;
  if (!line.empty() && line.back() == '\\') {
    line.back() = '\n';
    text_ += line;
    return true;
  }
  text_ += line;
  return false;
}

std::string MessageLines::take() {
  block_ = false;
  return std::exchange(text_, {});
}

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  Typing typing;
  std::filesystem::path file;
  bool told = false;            // that it cannot be written
  std::function<bool()> waits;  // lines from elsewhere
  std::function<void()> show;
};

LineEditor::LineEditor(std::filesystem::path history_file) : state_(std::make_unique<State>()) {
  if (!is_terminal(Stream::in) || !is_terminal(Stream::err)) return;
  use_utf8();
  State& s = *state_;
  std::error_code none;
  s.file = std::filesystem::weakly_canonical(history_file, none);  // a link stays one
  if (none) s.file = std::move(history_file);
  s.history = history_init();
  s.editor = el_init("onw", stdin, stderr, stderr);  // stdout is left to the answers
  if (s.editor == nullptr || s.history == nullptr) return;
  std::error_code ignored;
  std::filesystem::create_directories(s.file.parent_path(), ignored);
  HistEvent event;
  history(s.history, &event, H_SETSIZE, kHistoryLines);
  history(s.history, &event, H_SETUNIQUE, 1);
  history(s.history, &event, H_LOAD, s.file.c_str());
  el_set(s.editor, EL_CLIENTDATA, &s.typing);
  el_set(s.editor, EL_PROMPT, prompt_of);
  el_set(s.editor, EL_EDITOR, "emacs");
  el_set(s.editor, EL_HIST, history, s.history);
  el_set(s.editor, EL_SIGNAL, 1);  // a signal finds the terminal as it was
  el_set(s.editor, EL_ADDFN, "onw-interrupt", "Clears the line, or ends", on_interrupt);
  el_set(s.editor, EL_BIND, "^C", "onw-interrupt", nullptr);
  el_set(s.editor, EL_SETTY, "-d", "-isig", nullptr);  // while a line is typed, Ctrl-C is a key
  el_source(s.editor, nullptr);                        // the person's own ~/.editrc
}

LineEditor::~LineEditor() {
  State& s = *state_;
  if (s.history != nullptr) history_end(s.history);
  if (s.editor != nullptr) el_end(s.editor);
}

void LineEditor::while_nothing_is_typed(std::function<bool()> waits, std::function<void()> show) {
  state_->waits = std::move(waits);
  state_->show = std::move(show);
}

// libedit draws its prompt when it reads: until then it is ours.
void LineEditor::wait_for_typing(const std::string& prompt) {
  constexpr int kLookEveryMs = 200;
  constexpr const char* kBackAndClear = "\r\x1b[K";
  if (!state_->waits) return;
  tell("{}", prompt);
  std::fflush(stderr);
  while (!comes_within(Stream::in, kLookEveryMs)) {
    if (!state_->waits()) continue;
    tell("{}", kBackAndClear);
    state_->show();
    tell("{}", prompt);
    std::fflush(stderr);
  }
  tell("{}", kBackAndClear);
}

std::optional<std::string> LineEditor::read_line(const std::string& prompt) {
  State& s = *state_;
  if (s.editor == nullptr) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  s.typing.prompt = prompt;
  if (end_waits(Stream::in)) return std::nullopt;
  // The terminal is raw before the prompt stands there: libedit itself waits until it reads, and a Ctrl-D that the
  // terminal took as a line of its own until then arrives as a NUL.
  el_set(s.editor, EL_PREP_TERM, 1);
  if (!s.typing.within) wait_for_typing(prompt);
  if (end_waits(Stream::in)) return std::nullopt;
  int count = 0;
  const char* typed = el_gets(s.editor, &count);
  if (typed == nullptr || count <= 0) return std::nullopt;
  std::string line(typed, static_cast<size_t>(count));
  if (!line.empty() && line.back() == '\n') line.pop_back();
  if (!line.empty()) {
    HistEvent event;
    history(s.history, &event, H_ENTER, line.c_str());
    const auto saved = save(s.history, s.file);  // at once: a Ctrl-C leaves no time later
    if (!saved && !std::exchange(s.told, true)) tell("What is typed is not kept: {}\n", saved.error().message);
  }
  return line;
}

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  MessageLines message;
  Typing& typing = state_->typing;
  typing.within = false;
  auto line = read_line(prompt);
  while (line && message.add(std::move(*line))) {
    typing.within = true;
    line = read_line("... ");
    if (!std::exchange(typing.dropped, false)) continue;
    message.take();
    typing.within = false;
    line = read_line(prompt);
  }
  if (!line && message.empty()) return std::nullopt;
  return message.take();
}

}  // namespace onw::cli
