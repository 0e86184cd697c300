#include <fmt/ranges.h>

#include <cstdio>
#include <exception>
#include <new>
#include <optional>

#include "base/child_process.h"
#include "base/version.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/suggest.h"
#include "server/request_fields.h"
#include "targets/openvino/compile_child.h"
#include "targets/openvino/probe.h"

namespace onw::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

constexpr size_t kMessageBytes = 4000;  // a message may quote what was found

}  // namespace

int complain(const Error& e) {
  tell("onw: {}\n", printable(e.message, kMessageBytes));
  return e.code == Code::usage ? kUsage : kFailure;
}

namespace {

int complain_of_command(const std::string& word) {
  std::vector<std::string_view> names;
  for (const auto& command : all_commands()) names.push_back(command.name);
  tell("onw: there is no command '{}'.{} Commands: {}\n", word, did_you_mean(word, names), fmt::join(names, " "));
  return kUsage;
}

// Data was asked for and printed: what is left to go wrong is writing it.
Result<void> finish(Result<void> result) {
  RETURN_IF_ERROR(result);
  return flush_output();
}

Result<void> run_command(const Command& command, const std::vector<std::string>& words) {
  auto args = parse(command, words);
  RETURN_IF_ERROR(args);
  if (!*args) return print("{}", help(command));
  return command.run(**args);
}

const Command* find_command(const std::string& word) {
  for (const auto& command : all_commands())
    if (command.name == word) return &command;
  return nullptr;
}

// onw asks OpenVINO for its devices in a process of its own, which is onw again.
Result<void> probe_openvino(const std::vector<std::string>& words) {
  if (words.size() < 2) return error(Code::usage, "onw {} is what onw doctor starts", words.front());
  be_a_child();
  const auto text = words.size() > 2 ? openvino::run_small_graph(words[1], words[2]) : openvino::examine(words[1]);
  RETURN_IF_ERROR(text);
  return write_output(*text);
}

// Compilers take whole processes along: onw compiles each graph in one of its own, which is onw again.
Result<void> compile_for_openvino(const std::vector<std::string>& words) {
  if (words.size() != 2) return error(Code::usage, "onw {} is what onw starts by itself", words.front());
  return write_output(openvino::compile_ordered(words[1]));
}

// A word that is no command and that onw starts itself with; null for any other.
Result<void> (*own_command(const std::string& word))(const std::vector<std::string>&) {
  if (word == openvino::kProbeCommand) return probe_openvino;
  if (word == openvino::kCompileCommand) return compile_for_openvino;
  return nullptr;
}

// A word that is no command; empty where nobody knows it.
std::optional<std::string> answer(const std::string& word) {
  if (word == "--version") return fmt::format("onw {}\n", kVersion);
  if (word == "--help" || word == "-h" || word == "help") return help(all_commands());
  if (word == "--help-markdown") return help_markdown(all_commands());
  if (word == "--request-fields-markdown") return server::request_fields_markdown();
  return std::nullopt;
}

}  // namespace

int run(const std::vector<std::string>& words) {
  if (words.empty()) {
    tell("{}", help(all_commands()));
    return kUsage;
  }
  const std::string& word = words.front();
  const Command* command = find_command(word);
  const auto text = answer(word);
  const auto own = own_command(word);
  if (command == nullptr && !text && own == nullptr) return complain_of_command(word);
  try {
    const auto result = finish(command != nullptr ? run_command(*command, {words.begin() + 1, words.end()})
                               : own != nullptr   ? own(words)
                                                  : write_output(*text));
    return result ? 0 : complain(result.error());
  } catch (const std::bad_alloc&) {
    return complain({Code::out_of_memory, "out of memory. Close other programs, or ask for less --context"});
  } catch (const std::exception& e) {
    return complain({Code::internal, fmt::format("a fault of onw's own: {}", e.what())});
  }
}

}  // namespace onw::cli
