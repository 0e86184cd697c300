// Measured costs of steps, kept among what can be made again: what drafts are worth is known from the first answer on.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/topology.h"
#include "kernels/isa.h"
#include "runtime/step_costs.h"

namespace onw {

// The file for a model (told apart by `weights_digest`) on a device of this machine.
std::filesystem::path step_table_file(const std::filesystem::path& cache, std::string_view weights_digest,
                                      std::string_view device, Isa isa, const ThreadPlan& plan);

// What was kept; nothing where there is nothing readable.
StepCosts::Table read_step_table(const std::filesystem::path& file);

// Keeps it; a cache that cannot be written costs a measurement next time, and nothing else.
void write_step_table(const std::filesystem::path& file, const StepCosts::Table& table);

}  // namespace onw
