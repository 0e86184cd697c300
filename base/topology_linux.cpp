#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "base/topology.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

class Hwloc {
 public:
  Hwloc() { ok_ = hwloc_topology_init(&topology_) == 0; }
  Hwloc(const Hwloc&) = delete;
  Hwloc& operator=(const Hwloc&) = delete;
  ~Hwloc() {
    if (ok_) hwloc_topology_destroy(topology_);
  }
  bool load() { return ok_ && hwloc_topology_load(topology_) == 0; }
  hwloc_topology_t get() const { return topology_; }

 private:
  hwloc_topology_t topology_ = nullptr;
  bool ok_ = false;
};

bool allowed(const cpu_set_t* set, int cpu) { return set == nullptr || (cpu < CPU_SETSIZE && CPU_ISSET(cpu, set)); }

// The cores of a loaded topology, without CPUs outside `set` (null: all).
std::vector<Core> cores_of(hwloc_topology_t topology, const cpu_set_t* set) {
  std::vector<Core> cores;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, object));) {
    Core core;
    int cpu = -1;
    while ((cpu = hwloc_bitmap_next(object->cpuset, cpu)) >= 0)
      if (allowed(set, cpu)) core.cpus.push_back(cpu);
    if (core.cpus.empty()) continue;
    const int kind = hwloc_cpukinds_get_by_cpuset(topology, object->cpuset, 0);
    int efficiency = 0;
    if (kind >= 0 && hwloc_cpukinds_get_info(topology, kind, nullptr, &efficiency, nullptr, nullptr, 0) == 0)
      core.kind = std::max(efficiency, 0);  // hwloc ranks the kinds from 0 up; -1: unknown
    cores.push_back(std::move(core));
  }
  return cores;
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "QUOTA PERIOD" in microseconds, "max" or a negative quota for none.
std::optional<double> share(const std::string& text) {
  std::istringstream words(text);
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> least(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// The least share along `group` and its parents below `mount`. In a container the group's path is the host's and does
// not exist: then the mount itself is the group.
template <class Read>
std::optional<double> least_share(const fs::path& mount, fs::path group, Read read) {
  std::optional<double> found = read(mount);
  for (; group.has_relative_path(); group = group.parent_path())
    found = least(found, read(mount / group.relative_path()));
  return found;
}

}  // namespace

std::optional<double> cgroup_quota(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  std::optional<double> quota;
  for (std::string line; std::getline(groups, line);) {  // ID:CONTROLLERS:PATH
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      quota =
          least(quota, least_share(mounts, group, [](const fs::path& p) { return share(first_line(p / "cpu.max")); }));
      continue;
    }
    const std::string padded = "," + controllers + ",";
    if (padded.find(",cpu,") == std::string::npos) continue;
    for (const std::string& mount : {controllers, std::string("cpu")})
      quota = least(quota, least_share(mounts / mount, group, [](const fs::path& p) {
                      return share(first_line(p / "cpu.cfs_quota_us") + " " + first_line(p / "cpu.cfs_period_us"));
                    }));
  }
  return quota;
}

Machine read_machine() {
  Machine machine;
  cpu_set_t set;
  const bool bounded = sched_getaffinity(0, sizeof(set), &set) == 0;
  Hwloc hwloc;
  if (hwloc.load()) machine.cores = cores_of(hwloc.get(), bounded ? &set : nullptr);
  if (machine.cores.empty()) {
    const int cpus = bounded ? CPU_SETSIZE : static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u));
    for (int cpu = 0; cpu < cpus; cpu++)
      if (allowed(bounded ? &set : nullptr, cpu)) machine.cores.push_back({{cpu}, 0});
  }
  machine.quota = cgroup_quota("/");
  return machine;
}

Result<Machine> synthetic_machine(const std::string& description) {
  Hwloc hwloc;
  if (hwloc_topology_set_synthetic(hwloc.get(), description.c_str()) != 0 || !hwloc.load())
    return error(Code::invalid_argument, "'{}' is no synthetic topology of hwloc", description);
  return Machine{cores_of(hwloc.get(), nullptr), std::nullopt};
}

}  // namespace onw
