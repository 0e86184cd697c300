// One table of commands, flags and environment variables. The parser, the help, docs/cli.md and the environment come
// from it; a flag is one row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace onw::cli {

enum class Kind : uint8_t {
  toggle,    // present or not
  text,      // any text, a file among them
  choice,    // one of Flag::value, which lists them between bars
  integer,   // min..max
  number,    // min..max
  integers,  // several integers between commas, each min..max
};

struct Flag {
  std::string_view name;  // "--port"
  Kind kind;
  std::string_view value;     // how the help shows the value: "N", "FILE", "CPU|reference"; empty for a toggle
  std::string_view fallback;  // the default, as it would be typed; empty: none
  std::string_view env;       // the variable that stands for the flag where it is absent; empty: none
  std::string_view commands;  // those that have it, between spaces
  std::string_view help;
  double min = 0;
  double max = 0;
};
std::span<const Flag> all_flags();

// Variables that belong to no flag.
struct Variable {
  std::string_view name;
  std::string_view help;
};
std::span<const Variable> all_variables();

// What was typed after a command, checked: the accessors of a flag that the command has cannot fail.
class Args {
 public:
  const std::string& positional(size_t i) const;  // "" where an optional one is absent
  bool has(std::string_view flag) const;          // a toggle that is set, or a value that was given or has a default
  std::string text(std::string_view flag) const;  // "" where absent
  std::string variable(std::string_view flag) const;  // "ONW_DEVICE=NPU" where that stands for the flag, else ""
  std::optional<int64_t> integer(std::string_view flag) const;
  std::optional<double> number(std::string_view flag) const;
  std::vector<int64_t> integers(std::string_view flag) const;
  std::vector<std::string> list(std::string_view flag) const;  // what stands between commas

 private:
  friend class Parser;
  std::vector<std::string> positionals_;
  std::map<std::string, std::string, std::less<>> values_;     // flag -> as typed; a toggle: "1"
  std::map<std::string, std::string, std::less<>> variables_;  // flag -> what gave its value
};

struct Positional {
  std::string_view name;  // "MODEL"
  std::string_view help;
  bool required = true;
};

struct Command {
  std::string_view name;
  std::string_view summary;      // one line, for the list of commands
  std::string_view description;  // what the help adds
  std::vector<Positional> positionals;
  Result<void> (*run)(const Args&);
};

// What somebody typed for a flag of choices, as the table spells it. Errors: usage, with the choices.
Result<std::string> choice_of(std::string_view flag, std::string_view command, const std::string& typed);

// The words after the command's name. Errors: usage (says what is wrong and how to see the help). `--help` gives an
// empty optional: print help(command).
Result<std::optional<Args>> parse(const Command& command, const std::vector<std::string>& words);

std::string help(const Command& command);
std::string help(std::span<const Command> commands);
std::string help_markdown(std::span<const Command> commands);

}  // namespace onw::cli
