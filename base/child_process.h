// Another program, run to its end: for work that may crash or hang, and must not take this process along.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace onw {

struct ChildOutcome {
  int exit_code = -1;      // where it ended by itself
  int signal = 0;          // what ended it otherwise
  bool timed_out = false;  // then it was ended by us
  bool stopped = false;    // ended by us because the caller asked for it
  int64_t peak_bytes = 0;  // of memory that it had at most, as the system counts; 0: not known
  std::string output;      // of standard output and error, each cut at 1 MiB
  std::string errors;

  bool succeeded() const { return exit_code == 0 && !timed_out && !stopped; }
};

// Runs words[0] (a path, or a name to be searched) with the other words, and nothing to read. After `seconds` it and
// what it started are ended. Errors: io where it cannot be started.
Result<ChildOutcome> run_child(const std::vector<std::string>& words, double seconds);

// The same; ends it as soon as `stop`, which is asked some times a second, says so.
Result<ChildOutcome> run_child(const std::vector<std::string>& words, double seconds,
                               const std::function<bool()>& stop);

// For the child: it ends when the thread that started it does, however that ends, and is the first to go where memory
// runs out.
void be_a_child();

// "ended with exit code 3", "crashed (Segmentation fault)", "did not end within 20 s".
std::string describe(const ChildOutcome& outcome, double seconds);

// The file of the program that runs.
std::filesystem::path this_program();

}  // namespace onw
