// Every command: a thin function over the other rooms. Data goes to stdout, everything else to stderr.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"

namespace onw::cli {

Result<void> run_pull(const Args& args);
Result<void> run_list(const Args& args);
Result<void> run_rm(const Args& args);
Result<void> run_convert(const Args& args);
Result<void> run_chat(const Args& args);
Result<void> run_serve(const Args& args);
Result<void> run_tokenize(const Args& args);
Result<void> run_render(const Args& args);
Result<void> run_bench(const Args& args);
Result<void> run_eval_command(const Args& args);
Result<void> run_inspect(const Args& args);
Result<void> run_compile(const Args& args);
Result<void> run_check(const Args& args);
Result<void> run_doctor(const Args& args);

std::span<const Command> all_commands();

// Tells of an error on stderr, and gives its exit code: 2 for a wrong command line, else 1.
int complain(const Error& e);

// The whole program: 0 success, 1 failure, 2 usage.
int run(const std::vector<std::string>& words);

}  // namespace onw::cli
