#include "cli/commands.h"

#include <vector>

namespace onw::cli {

std::span<const Command> all_commands() {
  static const Positional kModel{"MODEL", "A model folder, the name of a model in the store, or a .gguf file"};
  static const std::vector<Command> commands = {
      {"pull",
       "Brings a model from the hub, and converts it for this machine",
       "An interrupted pull goes on where it stopped. Everything is verified against the hub's digests.",
       {{"SOURCE", "A Hugging Face id (org/name), or the address of a repository or a file"}},
       run_pull},
      {"list", "Lists the models on this machine", "", {}, run_list},
      {"rm", "Removes a model", "", {{"NAME", "As onw list shows it"}}, run_rm},
      {"convert",
       "Turns a published model into a model folder",
       "Reads Hugging Face folders and .gguf files. Prints the format of each weight with its relative RMS error. An "
       "interrupted conversion goes on where it stopped.",
       {{"SRC", "A folder with config.json and safetensors, or a .gguf file"}, {"OUT", "The folder to make"}},
       run_convert},
      {"check",
       "Checks that a model folder is whole",
       "What every start checks, and with --deep every byte of the weights against their digest.",
       {kModel},
       run_check},
      {"doctor", "Shows what this machine offers, and what to do about what it lacks", "", {}, run_doctor},
  };
  return commands;
}

}  // namespace onw::cli
