#include "cli/commands.h"

#include <vector>

namespace onw::cli {

std::span<const Command> all_commands() {
  static const std::vector<Command> commands = {
      {"doctor", "Shows what this machine offers, and what to do about what it lacks", "", {}, run_doctor},
  };
  return commands;
}

}  // namespace onw::cli
