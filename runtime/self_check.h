// The first answers of a device beside the CPU's: compilers and drivers have given graphs that run and compute
// something else. Compared by how far the distributions are apart and by the token that comes first; never by logits,
// which differ with every arithmetic.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "targets/executable.h"

namespace onw {

struct SelfCheck {
  int rows = 0;
  double mean_kl = 0;  // KL(CPU || device), in nats
  int same_first = 0;  // rows in which the device's first token is the CPU's, or one about as likely there
};

// At most 16 rows: one step of many, then single ones, so that both kinds of graphs answer. Errors: those of run, and
// numerics.
Result<SelfCheck> compare_first_rows(Executable& device, Executable& cpu);

// Whether that is the same model; else what is wrong and what to do, `device` being its name for people.
Result<void> judge(const SelfCheck& check, std::string_view device);

// What a check found, kept with what it is about: `key` names the model's weights, the device, OpenVINO's version and
// whatever else the compiled graphs depend on.
class KeptCheck {
 public:
  KeptCheck(const std::filesystem::path& cache, std::string_view key);

  // None where there is nothing readable.
  std::optional<SelfCheck> read() const;
  // A cache that cannot be written costs a check next time, and nothing else.
  void write(const SelfCheck& check) const;

 private:
  std::filesystem::path file_;
};

// Compares and judges, once a key.
Result<void> check_once(const KeptCheck& kept, Executable& device, Executable& cpu, std::string_view name);

}  // namespace onw
