#include "runtime/measured_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/cpu_features.h"
#include "base/digest.h"
#include "base/output_file.h"
#include "graph/json.h"

namespace onw {

std::filesystem::path step_table_file(const std::filesystem::path& cache, std::string_view weights_digest,
                                      std::string_view device, Isa isa, const ThreadPlan& plan) {
  const std::string key = fmt::format("1\n{}\n{}\n{}\n{}\n{} {} {}", weights_digest, device, cpu_features().model,
                                      name(isa), plan.threads, plan.fast, fmt::join(plan.cpus, ","));
  return cache / "steps" / (sha256_hex(key).substr(0, 32) + ".json");
}

StepCosts::Table read_step_table(const std::filesystem::path& file) {
  constexpr double kLeast = 1e-6, kMost = 1e6;  // beyond that nobody measured it
  StepCosts::Table table{};
  const auto json = read_json_file(file);
  if (!json || !json->is_object() || !json->contains("measured")) return table;
  const auto& measured = (*json)["measured"];
  if (!measured.is_array() || measured.size() != table.size()) return table;
  for (size_t i = 1; i < table.size(); ++i) {
    const double x = measured[i].is_number() ? measured[i].get<double>() : 0;
    if (x >= kLeast && x <= kMost) table[i] = x;
  }
  return table;
}

void write_step_table(const std::filesystem::path& file, const StepCosts::Table& table) {
  std::error_code ignored;
  std::filesystem::create_directories(file.parent_path(), ignored);
  (void)write_file_atomically(file, dump_json({{"measured", table}}, -1));
}

}  // namespace onw
