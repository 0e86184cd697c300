#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "cli/suggest.h"
#include "runtime/sampling_limits.h"

namespace onw::cli {
namespace {

bool belongs(const Flag& flag, std::string_view command) {
  std::string_view rest = flag.commands;
  while (!rest.empty()) {
    const auto end = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, end) == command) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

std::vector<const Flag*> flags_of(std::string_view command) {
  std::vector<const Flag*> mine;
  for (const Flag& flag : all_flags())
    if (belongs(flag, command)) mine.push_back(&flag);
  return mine;
}

// What is wrong with a flag that the command does not have.
std::string unknown_flag(const Command& command, const std::string& name) {
  std::vector<std::string_view> mine = {"--help"};
  for (const Flag* flag : flags_of(command.name)) mine.push_back(flag->name);
  const auto elsewhere = std::ranges::find(all_flags(), std::string_view(name), &Flag::name);
  if (elsewhere != all_flags().end())
    return fmt::format("{} is no flag of onw {}, but of: {}.", name, command.name, elsewhere->commands);
  return fmt::format("onw {} has no flag {}.{}", command.name, name, did_you_mean(name, mine));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const auto end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<int64_t> to_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> to_number(std::string_view text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string range_text(const Flag& flag) { return onw::range_text({flag.min, flag.max}); }

template <class T>
bool within(const Flag& flag, const std::optional<T>& value) {
  return value && static_cast<double>(*value) >= flag.min && static_cast<double>(*value) <= flag.max;
}

// A choice as the table spells it: "npu" is NPU. Anything else stays as it is.
std::string spelled(const Flag& flag, const std::string& typed) {
  const auto lower = [](std::string text) {
    std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    return text;
  };
  if (flag.kind == Kind::choice)
    for (const auto& choice : split(flag.value, '|'))
      if (lower(choice) == lower(typed)) return choice;
  return typed;
}

// What is wrong with `typed` as a value of the flag; empty where it is fine.
std::string complaint(const Flag& flag, const std::string& typed) {
  switch (flag.kind) {
    case Kind::toggle:
    case Kind::text:
      return {};
    case Kind::choice: {
      const auto choices = split(flag.value, '|');
      if (std::find(choices.begin(), choices.end(), typed) != choices.end()) return {};
      return fmt::format("'{}' is not one of {}", typed, fmt::join(choices, ", "));
    }
    case Kind::integer:
      if (within(flag, to_integer(typed))) return {};
      return fmt::format("'{}' is not a whole number {}", typed, range_text(flag));
    case Kind::number:
      if (within(flag, to_number(typed))) return {};
      return fmt::format("'{}' is not a number {}", typed, range_text(flag));
    case Kind::integers:
      for (const auto& part : split(typed, ','))
        if (!within(flag, to_integer(part)))
          return fmt::format("'{}' is not a whole number {} (several: 64,512)", part, range_text(flag));
      return {};
  }
  return {};
}

std::string shown_value(const Flag& flag) {
  return flag.kind == Kind::toggle ? std::string() : fmt::format(" {}", flag.value);
}

std::string shown_help(const Flag& flag) {
  std::string text(flag.help);
  if (!flag.fallback.empty()) text += fmt::format(" (default: {})", flag.fallback);
  if (!flag.env.empty()) text += fmt::format(" [{}]", flag.env);
  return text;
}

std::string usage_line(const Command& command) {
  std::string line = fmt::format("onw {}", command.name);
  for (const auto& p : command.positionals)
    line += p.required ? fmt::format(" {}", p.name) : fmt::format(" [{}]", p.name);
  if (!flags_of(command.name).empty()) line += " [FLAGS]";
  return line;
}

// Two columns: names, and what they do, wrapped to 100 characters.
std::string rows(const std::vector<std::pair<std::string, std::string>>& pairs) {
  constexpr size_t kWidth = 100;
  size_t left = 0;
  for (const auto& pair : pairs) left = std::max(left, pair.first.size());
  std::string text;
  for (const auto& [name, meaning] : pairs) {
    std::string line = fmt::format("  {:<{}} ", name, left);
    size_t column = left + 3;
    bool first = true;
    for (const auto& word : split(meaning, ' ')) {
      if (!first && column + 1 + word.size() > kWidth) {
        line += "\n" + std::string(left + 4, ' ');
        column = left + 4;
      }
      line += " " + word;
      column += 1 + word.size();
      first = false;
    }
    text += line + "\n";
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> flag_rows(const Command& command) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Flag* flag : flags_of(command.name))
    pairs.emplace_back(fmt::format("{}{}", flag->name, shown_value(*flag)), shown_help(*flag));
  pairs.emplace_back("--help", "Shows this");
  return pairs;
}

std::string escaped(std::string_view text) {  // for a table of markdown
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

}  // namespace

class Parser {
 public:
  static Result<std::optional<Args>> parse(const Command& command, const std::vector<std::string>& words);

 private:
  static Result<void> read_words(const Command& command, const std::vector<std::string>& words, Args& args);
  static Result<void> fill(const Command& command, Args& args);
};

// CLI11 reads the words; what they mean is the table's.
Result<void> Parser::read_words(const Command& command, const std::vector<std::string>& words, Args& args) {
  CLI::App app;
  app.set_help_flag();
  app.allow_windows_style_options(false);
  std::vector<std::string> positionals;
  std::map<std::string, std::string> typed;
  std::map<std::string, bool> toggled;
  for (const Flag* flag : flags_of(command.name)) {
    const std::string name(flag->name);
    if (flag->kind == Kind::toggle)
      app.add_flag(name, toggled[name]);
    else
      app.add_option(name, typed[name])->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  app.add_option("words", positionals);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ExtrasError& e) {
    const auto end = std::find(words.begin(), words.end(), "--");
    for (auto word = words.begin(); word != end; ++word) {
      const auto name = word->substr(0, word->find('='));
      if (name.size() > 1 && name.front() == '-' && !typed.contains(name) && !toggled.contains(name))
        return error(Code::usage, "{} See: onw {} --help", unknown_flag(command, name), command.name);
    }
    return error(Code::usage, "{}. See: onw {} --help", e.what(), command.name);
  } catch (const CLI::ParseError& e) {
    return error(Code::usage, "{}. See: onw {} --help", e.what(), command.name);
  }
  for (const auto& [name, on] : toggled)
    if (on) args.values_[name] = "1";
  for (const auto& [name, value] : typed)
    if (app.get_option(name)->count() > 0) args.values_[name] = value;
  args.positionals_ = std::move(positionals);
  return {};
}

// Adds what the environment and the defaults say, and checks every value.
Result<void> Parser::fill(const Command& command, Args& args) {
  for (const Flag* flag : flags_of(command.name)) {
    const std::string name(flag->name);
    std::string origin = name;
    if (!args.values_.contains(name) && !flag->env.empty()) {
      const char* value = std::getenv(std::string(flag->env).c_str());
      if (value != nullptr && *value != '\0') {
        args.values_[name] = value;
        args.variables_[name] = fmt::format("{}={}", flag->env, value);
        origin = flag->env;
      }
    }
    if (!args.values_.contains(name) && !flag->fallback.empty()) args.values_[name] = flag->fallback;
    const auto found = args.values_.find(name);
    if (found == args.values_.end()) continue;
    found->second = spelled(*flag, found->second);
    if (const auto wrong = complaint(*flag, found->second); !wrong.empty())
      return error(Code::usage, "{}: {}. See: onw {} --help", origin, wrong, command.name);
  }
  return {};
}

Result<std::optional<Args>> Parser::parse(const Command& command, const std::vector<std::string>& words) {
  const auto rest = std::find(words.begin(), words.end(), "--");
  if (std::find_if(words.begin(), rest, [](auto& w) { return w == "--help" || w == "-h"; }) != rest)
    return std::optional<Args>();
  Args args;
  RETURN_IF_ERROR(read_words(command, words, args));
  const auto& names = command.positionals;
  if (args.positionals_.size() > names.size())
    return error(Code::usage, "'{}' is one word too many. Usage: {}", args.positionals_[names.size()],
                 usage_line(command));
  for (size_t i = args.positionals_.size(); i < names.size(); ++i)
    if (names[i].required) return error(Code::usage, "{} is missing. Usage: {}", names[i].name, usage_line(command));
  RETURN_IF_ERROR(fill(command, args));
  return std::optional<Args>(std::move(args));
}

Result<std::string> choice_of(std::string_view name, std::string_view command, const std::string& typed) {
  const auto flag = std::ranges::find_if(
      all_flags(), [&](const Flag& f) { return f.name == name && f.kind == Kind::choice && belongs(f, command); });
  CHECK(flag != all_flags().end());
  const std::string choice = spelled(*flag, typed);
  if (const auto wrong = complaint(*flag, choice); !wrong.empty()) return error(Code::usage, "{}", wrong);
  return choice;
}

Result<std::optional<Args>> parse(const Command& command, const std::vector<std::string>& words) {
  return Parser::parse(command, words);
}

const std::string& Args::positional(size_t i) const {
  static const std::string absent;
  return i < positionals_.size() ? positionals_[i] : absent;
}

bool Args::has(std::string_view flag) const { return values_.contains(flag); }

std::string Args::text(std::string_view flag) const {
  const auto found = values_.find(flag);
  return found == values_.end() ? std::string() : found->second;
}

std::string Args::variable(std::string_view flag) const {
  const auto found = variables_.find(flag);
  return found == variables_.end() ? std::string() : found->second;
}

std::optional<int64_t> Args::integer(std::string_view flag) const {
  return has(flag) ? to_integer(text(flag)) : std::nullopt;
}

std::optional<double> Args::number(std::string_view flag) const {
  return has(flag) ? to_number(text(flag)) : std::nullopt;
}

std::vector<int64_t> Args::integers(std::string_view flag) const {
  std::vector<int64_t> values;
  if (has(flag))
    for (const auto& part : split(text(flag), ',')) values.push_back(to_integer(part).value_or(0));
  return values;
}

std::vector<std::string> Args::list(std::string_view flag) const {
  return has(flag) ? split(text(flag), ',') : std::vector<std::string>();
}

std::string help(const Command& command) {
  std::string text = fmt::format("{}\n\nUsage: {}\n", command.summary, usage_line(command));
  if (!command.description.empty()) text += fmt::format("\n{}\n", command.description);
  std::vector<std::pair<std::string, std::string>> words;
  for (const auto& p : command.positionals) words.emplace_back(p.name, p.help);
  if (!words.empty()) text += "\n" + rows(words);
  return text + "\nFlags:\n" + rows(flag_rows(command));
}

std::string help(std::span<const Command> commands) {
  std::vector<std::pair<std::string, std::string>> pairs;
  std::vector<std::pair<std::string, std::string>> variables;
  for (const auto& command : commands) pairs.emplace_back(command.name, command.summary);
  for (const auto& variable : all_variables()) variables.emplace_back(variable.name, variable.help);
  return fmt::format(
      "onw runs large language models on this PC.\n\nUsage: onw COMMAND …\n\nCommands:\n{}\n"
      "Environment (flags name theirs in brackets):\n{}\n"
      "MODEL is a model folder, the name of one in the store, a .gguf file or a Hugging Face folder. Where a model "
      "owner/name is not\nthere, chat, serve and bench offer to pull it, on a terminal.\n"
      "More: onw COMMAND --help, onw --version\n",
      rows(pairs), rows(variables));
}

std::string help_markdown(std::span<const Command> commands) {
  std::string text =
      "# Commands\n\nMade by `onw --help-markdown` from the table in `cli/flag_table.cpp`; a test keeps it fresh.\n\n"
      "MODEL is a model folder, the name of one in the store, or a `.gguf` file or Hugging Face folder (converted once "
      "into the store). Where a model `owner/name` is not there, `chat`, `serve` and `bench` offer to pull it, on a "
      "terminal.\nExit codes: 0 success, 1 failure, 2 a wrong command line. Data goes to stdout, progress and "
      "messages to stderr.\n";
  for (const auto& command : commands) {
    text += fmt::format("\n## onw {}\n\n{}\n\n```\n{}\n```\n", command.name, command.summary, usage_line(command));
    if (!command.description.empty()) text += fmt::format("\n{}\n", command.description);
    if (!command.positionals.empty()) text += "\n";
    for (const auto& p : command.positionals) text += fmt::format("- `{}`: {}\n", p.name, p.help);
    const auto mine = flags_of(command.name);
    if (mine.empty()) continue;
    text += "\n| flag | meaning | default | variable |\n|---|---|---|---|\n";
    for (const Flag* flag : mine)
      text += fmt::format("| `{}{}` | {} | {} | {} |\n", flag->name, escaped(shown_value(*flag)), escaped(flag->help),
                          flag->fallback, flag->env.empty() ? "" : fmt::format("`{}`", flag->env));
  }
  text += "\n## Environment\n\nVariables named in the tables above stand for their flag. The others:\n\n";
  for (const auto& variable : all_variables()) text += fmt::format("- `{}`: {}\n", variable.name, variable.help);
  return text;
}

}  // namespace onw::cli
