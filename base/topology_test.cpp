#include "base/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_folder.h"

namespace onw {
namespace {

namespace fs = std::filesystem;

Machine machine(int fast, int slow, int island = 0, int smt = 1) {
  Machine m;
  int cpu = 0;
  const int kinds = island > 0 ? 3 : slow > 0 ? 2 : 1;
  for (int i = 0; i < fast; i++) {
    m.cores.push_back({{}, kinds - 1});
    for (int s = 0; s < smt; s++) m.cores.back().cpus.push_back(cpu++);
  }
  for (int i = 0; i < slow; i++) m.cores.push_back({{cpu++}, island > 0 ? 1 : 0});
  for (int i = 0; i < island; i++) m.cores.push_back({{cpu++}, 0});
  return m;
}

// platform/ui-163
TEST(PlanThreads, takes_every_physical_core_that_helps) {
  struct Case {
    const char* name;
    Machine machine;
    std::optional<double> quota;
    int threads;
  };
  const Case cases[] = {
      {"Arrow Lake, 8 P and 12 E", machine(8, 12), {}, 20},
      {"Lunar Lake, 4 P and 4 E", machine(4, 4), {}, 8},
      {"Meteor Lake, 6 P with SMT, 8 E, 2 low-power", machine(6, 8, 2, 2), {}, 14},
      {"desktop, 8 cores with SMT", machine(8, 0, 0, 2), {}, 8},
      {"two virtual CPUs", machine(2, 0), {}, 2},
      {"container of 2.5 CPUs on 20 cores", machine(8, 12), 2.5, 2},
      {"container of half a CPU", machine(8, 12), 0.5, 1},
      {"generous container", machine(4, 0), 64, 4},
      {"nothing known", Machine{}, {}, 1},
  };
  for (const Case& c : cases) {
    Machine m = c.machine;
    m.quota = c.quota;
    EXPECT_EQ(plan_threads(m).threads, c.threads) << c.name;
  }
}

TEST(PlanThreads, fills_fast_cores_before_slow_ones_and_binds_only_on_hybrid_cpus) {
  Machine hybrid = machine(2, 2, 0, 2);  // CPUs 0,1 and 2,3 fast; 4 and 5 slow
  std::ranges::reverse(hybrid.cores);    // as if the system had numbered slow cores first
  EXPECT_THAT(plan_threads(hybrid).cpus, ::testing::ElementsAre(2, 0, 5, 4));
  EXPECT_THAT(plan_threads(hybrid, 3).cpus, ::testing::ElementsAre(2, 0, 5));
  EXPECT_EQ(plan_threads(hybrid, 3).fast, 2);
  EXPECT_TRUE(plan_threads(hybrid, 9).cpus.empty());
  EXPECT_EQ(plan_threads(machine(4, 0)).fast, 0);
  EXPECT_TRUE(plan_threads(machine(4, 0)).cpus.empty());
}

TEST(PlanThreads, obeys_the_number_asked_for) {
  EXPECT_EQ(plan_threads(machine(8, 12), 3).threads, 3);
  EXPECT_EQ(plan_threads(machine(2, 0), 5).threads, 5);
}

TEST(Machine, of_hwloc_has_cores_and_their_hardware_threads) {
  const auto m = synthetic_machine("package:2 core:4 pu:2");
  ASSERT_TRUE(m);
  EXPECT_EQ(m->cores.size(), 8);
  EXPECT_EQ(m->cores[1].cpus.size(), 2);
  EXPECT_EQ(plan_threads(*m).threads, 8);
  EXPECT_FALSE(synthetic_machine("cores: many"));
}

TEST(Machine, of_this_computer_has_a_core) {
  const Machine m = read_machine();
  ASSERT_FALSE(m.cores.empty());
  for (const Core& core : m.cores) EXPECT_FALSE(core.cpus.empty());
  EXPECT_GE(plan_threads(m).threads, 1);
}

void write(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(CgroupQuota, is_the_least_of_the_group_and_its_parents) {
  const TempFolder folder;
  const fs::path root = folder.path();
  write(root / "proc/self/cgroup", "0::/user.slice/app.scope\n");
  write(root / "sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n");
  write(root / "sys/fs/cgroup/user.slice/app.scope/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_quota(root), 1.5);
  write(root / "sys/fs/cgroup/user.slice/app.scope/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_quota(root), 0.5);
}

TEST(CgroupQuota, of_a_container_is_at_the_mount) {
  const TempFolder folder;
  write(folder.path() / "proc/self/cgroup", "0::/docker/0123\n");
  write(folder.path() / "sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_quota(folder.path()), 4);
}

TEST(CgroupQuota, is_read_from_version_1_too) {
  const TempFolder folder;
  write(folder.path() / "proc/self/cgroup", "3:memory:/a\n4:cpu,cpuacct:/a/b\n");
  const fs::path group = folder.path() / "sys/fs/cgroup/cpu,cpuacct/a/b";
  write(group / "cpu.cfs_quota_us", "250000\n");
  write(group / "cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_quota(folder.path()), 2.5);
  write(group / "cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cgroup_quota(folder.path()), std::nullopt);
}

TEST(CgroupQuota, is_none_where_there_are_no_cgroups) {
  const TempFolder folder;
  EXPECT_EQ(cgroup_quota(folder.path()), std::nullopt);
}

}  // namespace
}  // namespace onw
