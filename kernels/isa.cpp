#include "kernels/isa.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace onw {
namespace {

struct Level {
  Isa isa;
  std::string_view name;
  bool (*available)(const CpuFeatures&);
};

constexpr std::array kLevels = {
    Level{Isa::generic, "generic", [](const CpuFeatures&) { return true; }},
    Level{Isa::avx2, "avx2", [](const CpuFeatures& c) { return c.avx2; }},
    Level{Isa::avxvnni, "avxvnni", [](const CpuFeatures& c) { return c.avx_vnni; }},
    Level{Isa::avx512vnni, "avx512vnni", [](const CpuFeatures& c) { return c.avx512_vnni; }},
    Level{Isa::amx, "amx", [](const CpuFeatures& c) { return c.amx_int8; }},
};

std::string_view forced_isa() {
  const char* value = std::getenv("ONW_ISA");
  return value == nullptr ? "" : value;
}

}  // namespace

std::string_view name(Isa isa) { return kLevels[static_cast<size_t>(isa)].name; }

std::optional<Isa> isa(std::string_view name) {
  const auto found = std::ranges::find(kLevels, name, &Level::name);
  if (found == kLevels.end()) return std::nullopt;
  return found->isa;
}

std::vector<Isa> available_isas(const CpuFeatures& cpu) {
  std::vector<Isa> levels;
  for (const Level& level : kLevels)
    if (level.available(cpu)) levels.push_back(level.isa);
  return levels;
}

bool runs_at(Isa kernel, Isa level) { return kernel <= level && (kernel != Isa::avxvnni || level == Isa::avxvnni); }

Result<Isa> choose_isa(std::string_view asked, const CpuFeatures& cpu) {
  const std::vector<Isa> levels = available_isas(cpu);
  if (asked.empty()) return levels.back();
  const std::optional<Isa> wanted = isa(asked);
  if (wanted && std::ranges::find(levels, *wanted) != levels.end()) return *wanted;
  std::vector<std::string_view> names;
  for (const Isa level : levels) names.push_back(name(level));
  return error(Code::usage, "ONW_ISA={}: {}; this CPU ({}) runs {}", asked,
               wanted ? "the CPU or the system lacks it" : "no such instruction set", cpu.model,
               fmt::join(names, ", "));
}

const Result<Isa>& active_isa() {
  static const Result<Isa> active = choose_isa(forced_isa(), cpu_features());
  return active;
}

std::string isa_banner() {
  const Result<Isa>& active = active_isa();
  if (!active) return active.error().message;
  return fmt::format("{} on {}{}", name(*active), cpu_features().model, forced_isa().empty() ? "" : " (ONW_ISA)");
}

}  // namespace onw
