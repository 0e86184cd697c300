// Which tokens may come next: a grammar, a JSON schema, a forced tool. The runtime defines the question; whoever owns
// the grammar answers it. One mask belongs to one choice, and is touched by the engine thread alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"

namespace onw {

class LogitMask {
 public:
  virtual ~LogitMask() = default;

  // Bit id % 32 of word id / 32 says whether token `id` may be drawn next; `bits` holds ceil(vocabulary / 32) words and
  // comes zeroed. Stop ids count as any other token: they are allowed where the grammar may end. At least one bit is
  // set, or the request ends with an error.
  virtual Result<void> allow(std::span<uint32_t> bits) = 0;

  // The token that was drawn (also the stop id that ends the answer).
  virtual Result<void> accept(int32_t id) = 0;

  // An independent mask in the same state: one for each further choice.
  virtual Result<std::unique_ptr<LogitMask>> fork() const = 0;
};

}  // namespace onw
