// Cores and quotas: how many threads are worth having, and where.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace onw {

// A physical core that this process may use.
struct Core {
  std::vector<int> cpus;  // the system's numbers of its hardware threads that the process may use
  int kind = 0;           // rank by speed: on hybrid CPUs E cores are 0, P cores 1 (with a low-power island: 0, 1, 2)
};

struct Machine {
  std::vector<Core> cores;
  std::optional<double> quota;  // CPUs that the cgroups grant, if they limit them
};

// This machine, by hwloc, the process's affinity and its cgroups. Never fails: what cannot be read counts as one core
// per allowed CPU.
Machine read_machine();

// A machine as hwloc's synthetic description has it, e.g. "package:1 core:4 pu:2". Errors: invalid_argument.
Result<Machine> synthetic_machine(const std::string& description);

// CPUs that the cgroups below `root` (normally /) grant this process, versions 1 and 2: the least of it and its
// parents.
std::optional<double> cgroup_quota(const std::filesystem::path& root);

struct ThreadPlan {
  int threads = 1;
  std::vector<int> cpus;  // one for each thread, fastest first; empty where the cores are alike and threads may roam
  int fast = 0;           // how many of the threads are on the fastest cores; 0 where the cores are alike
};

// One thread per physical core, P cores first, then E cores; a low-power island (the slowest of three kinds) is left
// alone; never more than the quota, rounded down. `asked` > 0 overrides the number, not the order.
ThreadPlan plan_threads(const Machine& machine, int asked = 0);

}  // namespace onw
