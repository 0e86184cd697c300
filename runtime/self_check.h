// The first answers of a device beside the CPU's: compilers and drivers have given graphs that run and compute
// something else. Compared by how far the distributions are apart and by the token that comes first; never by logits,
// which differ with every arithmetic.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "runtime/speed_watch.h"
#include "targets/executable.h"
#include "targets/openvino/blob_store.h"

namespace onw {

struct SelfCheck {
  int rows = 0;
  double mean_kl = 0;  // KL(CPU || device), in nats
  int same_first = 0;  // rows in which the device's first token is the CPU's, or one about as likely there
};

// At most 16 rows: one step of many, then single ones, so that both kinds of graphs answer. Errors: those of run, and
// numerics.
Result<SelfCheck> compare_first_rows(Executable& device, Executable& cpu, const CancelToken& cancel = CancelToken());

// Whether that is the same model; else what is wrong and what to do, `device` being its name for people.
Result<void> judge(const SelfCheck& check, std::string_view device);

// What a check found, kept with each of the compiled graphs that were checked: one that is made anew has no verdict,
// and neither has a device that it is a part of.
class KeptCheck {
 public:
  KeptCheck(openvino::BlobStore store, std::vector<std::string> keys)
      : store_(std::move(store)), keys_(std::move(keys)) {}

  // None unless every graph has the same one.
  std::optional<SelfCheck> read() const;
  // A store that cannot be written costs a check next time, and nothing else.
  void write(const SelfCheck& check, bool passed) const;

  // What a row takes on either side, kept beside the verdict; none unless every graph has the same.
  Speeds speeds() const;
  void note_speeds(const Speeds& speeds) const;

 private:
  openvino::BlobStore store_;
  std::vector<std::string> keys_;
};

// Compares and judges, unless there is a verdict. Errors: those of judge and compare_first_rows; cancelled, and then
// nothing is kept.
Result<void> check_once(const KeptCheck& kept, Executable& device, Executable& cpu, std::string_view name,
                        const CancelToken& cancel = CancelToken());

}  // namespace onw
