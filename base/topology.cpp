#include "base/topology.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace onw {

ThreadPlan plan_threads(const Machine& machine, int asked) {
  std::set<int> kinds;
  for (const Core& core : machine.cores) kinds.insert(core.kind);
  const bool alike = kinds.size() < 2;
  if (kinds.size() >= 3) kinds.erase(kinds.begin());
  std::vector<const Core*> cores;  // fastest first
  for (auto kind = kinds.rbegin(); kind != kinds.rend(); ++kind)
    for (const Core& core : machine.cores)
      if (core.kind == *kind) cores.push_back(&core);

  int threads = std::max(static_cast<int>(cores.size()), 1);
  if (machine.quota) threads = std::min(threads, std::max(static_cast<int>(std::floor(*machine.quota)), 1));
  if (asked > 0) threads = asked;

  ThreadPlan plan{.threads = threads};
  if (alike || threads > static_cast<int>(cores.size())) return plan;
  for (int t = 0; t < threads; t++) {
    plan.cpus.push_back(cores[t]->cpus.front());
    plan.fast += cores[t]->kind == cores[0]->kind;
  }
  return plan;
}

}  // namespace onw
