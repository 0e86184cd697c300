// Conversations for the cases of a benchmark. Filling a cache takes longer than most measurements: it is filled once,
// to the deepest case so far, and copied.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "targets/executable.h"

namespace onw::cli {

// The next token to feed, `n` counting from 0.
using Draw = std::function<int32_t(int64_t n)>;

// Conversations of equal length that move together.
class Batch {
 public:
  Batch(Executable& executable, const Draw& draw) : executable_(executable), draw_(draw) {}

  void add(std::unique_ptr<Sequence> sequence);
  // `tokens` more for each, in steps as large as the target takes; logits of the last row alone.
  Result<void> feed(int64_t tokens);
  Result<void> step(int64_t rows_each, bool last_logits);

 private:
  Executable& executable_;
  const Draw& draw_;
  int64_t drawn_ = 0;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> pointers_;
  std::vector<Row> rows_;
};

class Conversations {
 public:
  Conversations(Executable& executable, const Draw& draw) : executable_(executable), draw_(draw) {}

  // `count` conversations of `depth` tokens, each with memory of its own and room for `tokens` in all. Errors: those of
  // the executable.
  Result<Batch> at(int64_t depth, int count, int64_t tokens);

 private:
  Result<void> fill(int64_t depth);

  Executable& executable_;
  const Draw& draw_;
  std::unique_ptr<Sequence> filled_;
};

}  // namespace onw::cli
