#include "base/cpu_features.h"
#include "base/version.h"
#include "cli/commands.h"
#include "cli/output.h"

namespace onw::cli {

Result<void> run_doctor(const Args&) {
  const CpuFeatures& cpu = cpu_features();
  RETURN_IF_ERROR(print("onw {}\ncpu {}\n", kVersion, cpu.model));
  return {};
}

}  // namespace onw::cli
