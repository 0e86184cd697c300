// One conversation on the CPU: pages of K and V, convolution and delta states.
#pragma once

#include <memory>
#include <vector>

#include "targets/cpu/kv_pages.h"
#include "targets/cpu/recurrent_pages.h"
#include "targets/executable.h"

namespace onw::cpu {

// What all sequences of a model share.
struct SequenceForm {
  Program program;
  KvFormat kv = KvFormat::int8;
  int64_t max_context = 0;
  std::shared_ptr<PagePool> pages = std::make_shared<PagePool>();
};

// Positions behind a window that are kept, so that a few tokens can be taken back without a checkpoint.
constexpr int64_t kWindowSlack = 64;

class CpuSequence final : public Sequence {
 public:
  explicit CpuSequence(std::shared_ptr<const SequenceForm> form);

  int64_t length() const override { return length_; }
  Result<void> reserve(int64_t tokens) override;
  void commit(int rows_kept) override;
  int64_t truncate(int64_t n) override;
  Result<CheckpointPtr> checkpoint() override;
  Result<void> restore(const Checkpoint& checkpoint) override;
  Result<std::unique_ptr<Sequence>> fork(int64_t n) override;
  Result<void> export_to(StateSink& sink) const override;
  Result<void> import_from(StateSource& source) override;

  // For the executor: room for rows [length, length + rows), then the step's end.
  Result<void> prepare(int64_t rows);
  void extend(int64_t rows);
  std::vector<KvPages>& states() { return states_; }
  std::vector<RecurrentPages>& recurrent() { return recurrent_; }

 private:
  // The longest restorable length of at most n.
  int64_t restorable(int64_t n) const;
  void go_back(int64_t n);
  void settle();  // windows move on: what lies behind them goes

  std::shared_ptr<const SequenceForm> form_;
  std::vector<KvPages> states_;
  std::vector<RecurrentPages> recurrent_;
  int64_t length_ = 0;
  int64_t last_step_rows_ = 0;
};

}  // namespace onw::cpu
