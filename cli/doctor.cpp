// onw doctor: what this machine offers, and what to do about what it lacks.
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "base/huge_files.h"
#include "base/memory.h"
#include "base/paths.h"
#include "base/terminal.h"
#include "base/topology.h"
#include "base/version.h"
#include "cli/commands.h"
#include "cli/doctor_openvino.h"
#include "cli/output.h"
#include "cli/roofs.h"
#include "kernels/isa.h"

namespace onw::cli {
namespace {

using nlohmann::ordered_json;

struct Place {
  std::string path;
  std::filesystem::path nearest;  // the folder, or the nearest one above it that exists
  int64_t free_bytes = -1;        // -1: not known
  std::string unwritable = {};    // what of it takes no file; empty: all of it does
};

struct Findings {
  CpuFeatures cpu;
  std::vector<std::string> isas;
  std::string isa;                 // in use; empty where ONW_ISA asks for what there is not
  std::vector<int> cores_by_kind;  // slowest kind first
  size_t hardware_threads = 0;
  std::optional<double> quota;
  ThreadPlan threads;
  int64_t memory_bytes = 0, available_bytes = 0;
  std::string huge_pages;
  HugePageUse huge_page_use;
  std::optional<double> huge_share;  // of a file that is mapped where models are kept
  Place home, cache;
  Roofs roofs;
  OpenVinoFindings openvino;
  std::vector<std::string> advice;
};

// Tried, because rights say little: a disk may be full or mounted for reading, and root may do anything.
bool takes_a_file(const std::filesystem::path& folder) {
  const auto file = folder / fmt::format(".onw-{}", std::chrono::steady_clock::now().time_since_epoch().count());
  std::error_code ignored;
  const bool taken = (std::ofstream(file) << "onw" << std::flush).good();
  std::filesystem::remove(file, ignored);
  return taken;
}

// The folder and those in it that onw writes to; a file in the place of one, too.
std::string unwritable_in(const std::filesystem::path& folder, std::initializer_list<const char*> below) {
  if (!takes_a_file(folder)) return folder.string();
  for (const char* name : below)
    if (std::error_code failure; std::filesystem::exists(folder / name, failure) && !takes_a_file(folder / name))
      return (folder / name).string();
  return "";
}

Place place(std::filesystem::path path, std::initializer_list<const char*> below) {
  Place p{path.string(), {}};
  std::error_code failure;
  while (!path.empty() && !std::filesystem::exists(path, failure) && path != path.parent_path())
    path = path.parent_path();
  p.nearest = path;
  p.unwritable = unwritable_in(path, below);
  const auto space = std::filesystem::space(path, failure);
  if (!failure) p.free_bytes = static_cast<int64_t>(space.available);
  return p;
}

void advise(Findings& f) {
  const auto say = [&f]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    f.advice.push_back(fmt::format(format, std::forward<Args>(args)...));
  };
  if (!active_isa()) say("{}", active_isa().error().message);
  if (f.isas.back() == "generic") say("This CPU lacks AVX2: answers will be very slow. Use a CPU of 2013 or later");
  if (!f.isa.empty() && f.isa != f.isas.back())
    say("ONW_ISA forces {}, but the CPU has {}: unset ONW_ISA for full speed", f.isa, f.isas.back());
  if (f.quota && f.threads.threads < static_cast<int>(f.hardware_threads) &&
      *f.quota < static_cast<double>(f.threads.threads) + 1)
    say("A quota leaves {:.1f} CPUs to this process: raise it (for containers: --cpus) for more speed", *f.quota);
  if (f.available_bytes < 2'000'000'000)
    say("Only {} of memory are free: small models only. Close other programs", bytes_text(f.available_bytes));
  if (f.home.free_bytes >= 0 && f.home.free_bytes < 10'000'000'000)
    say("Only {} are free where models are kept: free some, or set ONW_HOME to a larger disk",
        bytes_text(f.home.free_bytes));
  if (f.huge_pages == "never")
    say("Huge pages are off (up to 30 % slower): echo madvise | sudo tee "
        "/sys/kernel/mm/transparent_hugepage/enabled");
  else if (f.huge_share && *f.huge_share < 0.5)
    say("Models are mapped in small pages: this file system or kernel has no huge pages for files. onw copies weights "
        "to "
        "huge pages of its own after each start, which no other process shares. XFS has them from Linux 5.18 on, ext4 "
        "from 6.16 on: set ONW_HOME and ONW_CACHE to such a disk");
}

// What takes the time, while it does: a line that goes away on a terminal, and one in all elsewhere.
class Busy {
 public:
  void with(std::string_view what) {
    if (terminal_)
      tell("\rLooking at {} ...\x1b[K", what);
    else if (!std::exchange(told_, true))
      tell("Looking at memory, cores, OpenVINO and its devices: this takes some seconds\n");
  }
  Busy() = default;
  ~Busy() {
    if (terminal_) tell("\r\x1b[K");
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  bool terminal_ = is_terminal(Stream::err);
  bool told_ = false;
};

Findings examine() {
  Busy busy;
  Findings f;
  f.cpu = cpu_features();
  for (const Isa isa : available_isas(f.cpu)) f.isas.emplace_back(name(isa));
  if (active_isa()) f.isa = name(*active_isa());
  const Machine machine = read_machine();
  for (const Core& core : machine.cores) {
    f.cores_by_kind.resize(std::max(f.cores_by_kind.size(), static_cast<size_t>(core.kind) + 1));
    ++f.cores_by_kind[static_cast<size_t>(core.kind)];
    f.hardware_threads += core.cpus.size();
  }
  f.quota = machine.quota;
  f.threads = plan_threads(machine);
  f.memory_bytes = total_memory_bytes();
  f.available_bytes = available_memory_bytes();
  f.huge_pages = huge_page_mode();
  f.huge_page_use = huge_page_use();
  f.home = place(home_folder(), {"models"});
  f.cache = place(cache_folder(), {"blobs", "devices", "layouts", "steps", "threads"});
  busy.with("how files lie in memory");
  f.huge_share = huge_share_of_files(f.home.nearest);
  busy.with("how fast memory and cores are");
  f.roofs = measure_roofs(f.threads, active_isa() ? *active_isa() : Isa::generic, 0.5);
  busy.with("OpenVINO and its devices");
  f.openvino = examine_openvino();
  advise(f);
  return f;
}

std::string cores_text(const Findings& f) {
  const auto& kinds = f.cores_by_kind;
  std::string text = fmt::format("{}", std::accumulate(kinds.begin(), kinds.end(), 0));
  if (kinds.size() == 2) text += fmt::format(" ({} P, {} E)", kinds[1], kinds[0]);
  if (kinds.size() == 3) text += fmt::format(" ({} P, {} E, {} low-power E)", kinds[2], kinds[1], kinds[0]);
  if (f.quota) text += fmt::format(", quota of {:.1f} CPUs", *f.quota);
  return text + fmt::format("; onw computes with {}", f.threads.threads);
}

std::string huge_pages_text(const Findings& f) {
  std::string text = f.huge_pages.empty() ? "unknown" : f.huge_pages;
  if (f.huge_share) text += fmt::format("; files where models are kept: {:.0f} % in huge pages", 100 * *f.huge_share);
  const auto& use = f.huge_page_use;
  if (use.mapped_file_bytes >= 0) text += fmt::format("; now in use: {} of files", bytes_text(use.mapped_file_bytes));
  if (use.anonymous_bytes >= 0) text += fmt::format(", {} of other memory", bytes_text(use.anonymous_bytes));
  return text;
}

std::string free_text(const Place& p) { return p.free_bytes < 0 ? "unknown" : bytes_text(p.free_bytes); }

std::vector<std::string> all_advice(const Findings& f, bool with_paths) {
  std::vector<std::string> all = f.advice;
  if (!f.home.unwritable.empty())
    all.push_back(
        fmt::format("Models cannot be pulled or converted: {} takes no file. Let ONW_HOME name a folder that "
                    "can be written",
                    with_paths ? f.home.unwritable : "their folder"));
  if (!f.cache.unwritable.empty())
    all.push_back(
        fmt::format("Layouts and compiled graphs are made anew at each start: {} takes no file. Let ONW_CACHE "
                    "name a folder that can be written",
                    with_paths ? f.cache.unwritable : "the cache"));
  for (std::string& line : openvino_advice(f.openvino, with_paths)) all.push_back(std::move(line));
  return all;
}

std::string to_text(const Findings& f, bool with_paths) {
  const auto path = [&](const Place& p) { return with_paths ? p.path + ", " : std::string(); };
  std::vector<std::vector<std::string>> rows = {
      {"onw", kVersion},
      {"CPU", f.cpu.model},
      {"instruction sets", fmt::format("{}; in use: {}", fmt::join(f.isas, " "), f.isa.empty() ? "none" : f.isa)},
      {"cores", cores_text(f)},
      {"memory", fmt::format("{}, {} available", bytes_text(f.memory_bytes), bytes_text(f.available_bytes))},
      {"read bandwidth", fmt::format("{:.1f} GB/s", f.roofs.read_bytes_per_s * 1e-9)},
      {"INT8 operations", fmt::format("{:.2f} TOPS", f.roofs.ops_per_s * 1e-12)},
      {"huge pages", huge_pages_text(f)},
      {"models", fmt::format("{}{} free", path(f.home), free_text(f.home))},
      {"cache", fmt::format("{}{} free", path(f.cache), free_text(f.cache))},
  };
  for (auto& row : openvino_rows(f.openvino, with_paths)) rows.push_back(std::move(row));
  std::string text = table(rows);
  text += "\n";
  const auto advice = all_advice(f, with_paths);
  if (advice.empty()) text += "Nothing to mend.\n";
  for (const auto& line : advice) text += fmt::format("- {}\n", line);
  return text;
}

ordered_json to_json(const Findings& f) {
  const auto place_json = [](const Place& p) {
    return ordered_json{{"path", p.path},
                        {"free_bytes", p.free_bytes < 0 ? ordered_json() : ordered_json(p.free_bytes)},
                        {"unwritable", p.unwritable.empty() ? ordered_json() : ordered_json(p.unwritable)}};
  };
  return {{"version", kVersion},
          {"cpu", f.cpu.model},
          {"isas", f.isas},
          {"isa", f.isa.empty() ? ordered_json() : ordered_json(f.isa)},
          {"cores_by_kind", f.cores_by_kind},
          {"hardware_threads", f.hardware_threads},
          {"quota_cpus", f.quota ? ordered_json(*f.quota) : ordered_json()},
          {"threads", f.threads.threads},
          {"memory_bytes", f.memory_bytes},
          {"available_bytes", f.available_bytes},
          {"huge_pages",
           {{"mode", f.huge_pages},
            {"share_of_files", f.huge_share ? ordered_json(*f.huge_share) : ordered_json()},
            {"anonymous_bytes", f.huge_page_use.anonymous_bytes},
            {"cached_file_bytes", f.huge_page_use.cached_file_bytes},
            {"mapped_file_bytes", f.huge_page_use.mapped_file_bytes}}},
          {"roofs",
           {{"read_bytes_per_s", f.roofs.read_bytes_per_s},
            {"ops_per_s", f.roofs.ops_per_s},
            {"threads", f.roofs.threads},
            {"buffer_bytes", f.roofs.buffer_bytes}}},
          {"home", place_json(f.home)},
          {"cache", place_json(f.cache)},
          {"openvino", openvino_json(f.openvino)},
          {"advice", all_advice(f, true)}};
}

}  // namespace

Result<void> run_doctor(const Args& args) {
  const Findings findings = examine();
  if (args.has("--json"))
    return print("{}\n", to_json(findings).dump(2, ' ', false, ordered_json::error_handler_t::replace));
  if (args.has("--report")) return print("```\n{}```\n", to_text(findings, false));
  return print("{}", to_text(findings, true));
}

}  // namespace onw::cli
