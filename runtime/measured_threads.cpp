#include "runtime/measured_threads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/cpu_features.h"
#include "base/digest.h"
#include "base/output_file.h"
#include "graph/json.h"

namespace onw {

MeasuredThreads::MeasuredThreads(const std::filesystem::path& cache, std::string_view weights_digest, Isa isa,
                                 const ThreadPlan& plan) {
  const std::string key = fmt::format("3\n{}\n{}\n{}\n{} {} {}", weights_digest, cpu_features().model, name(isa),
                                      plan.threads, plan.fast, fmt::join(plan.cpus, ","));
  file_ = cache / "threads" / (sha256_hex(key).substr(0, 32) + ".json");
}

cpu::ThreadTable::Choices MeasuredThreads::read() const {
  cpu::ThreadTable::Choices choices{};
  const auto json = read_json_file(file_);
  if (!json) return choices;
  const auto kept = find_ints(*json, "threads");
  if (kept.size() == choices.size())
    for (size_t i = 0; i < kept.size(); ++i)  // one out of range is measured anew
      choices[i] = kept[i] >= 0 && kept[i] <= 4096 ? static_cast<int>(kept[i]) : 0;
  return choices;
}

void MeasuredThreads::write(const cpu::ThreadTable::Choices& choices) const {
  std::error_code ignored;
  std::filesystem::create_directories(file_.parent_path(), ignored);
  const nlohmann::json json = {{"rows", cpu::ThreadTable::kMostRows}, {"threads", choices}};
  (void)write_file_atomically(file_, dump_json(json));
}

}  // namespace onw
