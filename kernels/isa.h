// The instruction sets that kernels are written for, and the one in use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_features.h"
#include "base/result.h"

namespace onw {

// Levels, the better the later. A CPU need not have all below its best: some with avx512vnni lack avxvnni.
enum class Isa { generic, avx2, avxvnni, avx512vnni, amx };

std::string_view name(Isa isa);
std::optional<Isa> isa(std::string_view name);

// Levels that such a CPU can run, ascending; generic is always one.
std::vector<Isa> available_isas(const CpuFeatures& cpu);

// Whether a kernel written for `kernel` may run at `level`: amx runs avx512vnni's kernels, but no level above runs
// those of avxvnni.
bool runs_at(Isa kernel, Isa level);

// The level named by `asked` (the value of ONW_ISA), or the best one where it is empty.
// Errors: usage (no such level, or one that the CPU lacks; the message lists those that it has).
Result<Isa> choose_isa(std::string_view asked, const CpuFeatures& cpu);

// choose_isa with ONW_ISA and this CPU, decided once. Programs check it at start and print isa_banner().
const Result<Isa>& active_isa();

// "avx512vnni on Intel(R) Xeon(R) Processor", with " (ONW_ISA)" where it was forced.
std::string isa_banner();

}  // namespace onw
