// onw chat: a conversation in the terminal, or one answer.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "base/interrupt.h"
#include "base/paths.h"
#include "base/terminal.h"
#include "cli/chat_session.h"
#include "cli/commands.h"
#include "cli/end_soon.h"
#include "cli/engine_flags.h"
#include "cli/line_editor.h"
#include "cli/model.h"
#include "cli/notices.h"
#include "cli/output.h"
#include "cli/pull.h"

namespace onw::cli {
namespace {

constexpr int kInterrupted = 130;  // what a shell says of a program that Ctrl-C ended
constexpr int kTerminated = 143;

ChatSettings settings_of(const Args& args, const server::ServedModel& model) {
  ChatSettings s;
  s.sampling = model.sampling;
  if (const auto x = args.number("--temperature")) s.sampling.temperature = static_cast<float>(*x);
  if (const auto x = args.number("--top-p")) s.sampling.top_p = static_cast<float>(*x);
  if (const auto x = args.integer("--top-k")) s.sampling.top_k = static_cast<int>(*x);
  if (const auto x = args.number("--min-p")) s.sampling.min_p = static_cast<float>(*x);
  if (const auto x = args.integer("--seed")) s.sampling.seed = static_cast<uint64_t>(*x);
  s.max_tokens = args.integer("--max-tokens").value_or(-1);
  s.system = args.text("--system");
  s.think = args.has("--think");
  return s;
}

Result<void> show(std::string_view piece) {
  RETURN_IF_ERROR(write_output(is_terminal(Stream::out) ? printable(piece) : std::string(piece)));
  return flush_output();
}

Result<void> show_thought(std::string_view piece) {
  if (is_terminal(Stream::err))
    tell("\x1b[2m{}\x1b[0m", printable(piece));
  else
    tell("{}", piece);
  std::fflush(stderr);
  return {};
}

Result<void> keep_thought(std::string_view) { return {}; }

Result<void> say_once(ChatSession& session, const std::string& message, const Running& running, NoticeBoard& notices) {
  const auto spoken = session.say(message);
  const auto ended = spoken ? show("\n") : Failure(spoken.error());
  notices.show();
  RETURN_IF_ERROR(ended);
  if (running.stopped()) exit_now(kInterrupted);
  return {};
}

void print_help() {
  tell(
      "A line is a message. A backslash at its end goes on; a line of \"\"\" begins a message of many lines, and "
      "another ends it.\n/clear begins a new conversation, /exit or Ctrl-D ends. Ctrl-C stops an answer or clears the "
      "line; on an "
      "empty line, twice, it ends.\n");
}

Result<void> answer_line(ChatSession& session, const std::string& message, const Engine& engine, NoticeBoard& notices) {
  notices.show();
  const DeviceReport before = engine.stats().device;
  const auto spoken = session.say(message);
  if (!spoken) notices.show();
  if (!spoken && !is_terminal(Stream::in)) return Failure(spoken.error());  // a script is told, and goes no further
  if (!spoken) {
    tell("onw: {}\n", printable(spoken.error().message));
    if (spoken.error().code == Code::context_overflow) tell("/clear begins a new conversation\n");
    return spoken.error().code == Code::io ? Failure(spoken.error()) : Result<void>();
  }
  RETURN_IF_ERROR(show("\n"));
  const char* why = spoken->finish == FinishReason::cancelled ? ", stopped"
                    : spoken->finish == FinishReason::length  ? ", cut at --max-tokens or at the end of the context"
                                                              : "";
  const std::string device = describe(since(before, engine.stats().device));
  notices.show();  // that a device is ready comes before the line that names it
  tell("[{}{}{}{}]\n", speeds_text(spoken->usage), why, device.empty() ? "" : ", ", device);
  return {};
}

// A terminal that edits shows notices by itself; elsewhere they may come at any time.
std::optional<std::string> next_message(LineEditor& editor, const std::string& prompt, NoticeBoard& notices) {
  std::optional<NoticeBoard::Free> idle;
  if (!is_terminal(Stream::in)) idle.emplace(notices);
  return editor.read(prompt);
}

Result<void> converse(ChatSession& session, const Engine& engine, NoticeBoard& notices) {
  LineEditor editor(home_folder() / "chat_history");
  const std::string prompt = is_terminal(Stream::in) ? "> " : "";
  if (!engine.stats().device.device.empty())
    editor.while_nothing_is_typed([&notices] { return notices.any(); }, [&notices] { notices.show(); });
  while (const auto message = next_message(editor, prompt, notices)) {
    if (message->empty()) continue;
    if (*message == "/exit" || *message == "/quit" || *message == "/bye") return {};
    if (*message == "/help" || *message == "/?") {
      print_help();
    } else if (*message == "/clear") {
      session.clear();
      tell("A new conversation\n");
    } else if (message->front() == '/' && message->find(' ') == std::string::npos) {
      tell("{} is no command here. /help shows them\n", *message);
    } else {
      RETURN_IF_ERROR(answer_line(session, *message, engine, notices));
    }
  }
  if (is_terminal(Stream::in)) tell("\n");
  return {};
}

}  // namespace

Result<void> run_chat(const Args& args) {
  const auto folder = locate_or_pull(args.positional(0));
  RETURN_IF_ERROR(folder);
  const auto notices = std::make_shared<NoticeBoard>();
  EndSoon end;
  EngineOptions options = engine_options(args);
  options.notice = NoticeBoard::collector(notices);
  const auto model = server::ServedModel::load(*folder, model_name(*folder), options);
  notices->show();
  RETURN_IF_ERROR(model);
  if (!(*model)->chat_template)
    tell("{} has no chat template: it continues the text that it is given\n", (*model)->name);
  Running running;
  ChatSession session(**model, settings_of(args, **model), running, show,
                      args.has("--think") ? show_thought : keep_thought);
  const InterruptWatch watch([&running](Interrupt interrupt) {
    if (interrupt == Interrupt::terminate) exit_now(kTerminated);
    if (!running.stop()) exit_now(kInterrupted);
  });
  if (!args.has("--prompt"))
    tell("{} on {}. /help shows what to type\n", (*model)->name, describe((*model)->engine->info()));
  if (const auto remark = fused_remark(args, (*model)->engine->info().device); !remark.empty()) tell("{}\n", remark);
  auto ended = args.has("--prompt") ? say_once(session, args.text("--prompt"), running, *notices)
                                    : converse(session, *(*model)->engine, *notices);
  end.begin(ended);
  return ended;
}

}  // namespace onw::cli
