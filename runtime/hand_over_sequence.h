// A sequence that lives on one of two sides and can move to the other.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "targets/executable.h"

namespace onw {

class HandOverSequence;
class HandOverCheckpoint;

// One of the two targets, with what lives on it. Sequences and checkpoints keep a side alive that was given up.
struct Side {
  std::string name;
  std::unique_ptr<Executable> executable;
  std::set<HandOverSequence*> sequences;
  std::set<HandOverCheckpoint*> checkpoints;
};
using SidePtr = std::shared_ptr<Side>;

// It knows its side: restoring it brings a sequence there.
class HandOverCheckpoint final : public Checkpoint {
 public:
  HandOverCheckpoint(SidePtr side, CheckpointPtr inner);
  ~HandOverCheckpoint() override;
  HandOverCheckpoint(const HandOverCheckpoint&) = delete;
  HandOverCheckpoint& operator=(const HandOverCheckpoint&) = delete;

  int64_t length() const override { return length_; }
  int64_t bytes() const override { return inner_ == nullptr ? 0 : inner_->bytes(); }

  // Its side is gone, and what it kept with it.
  void expire();

 private:
  friend class HandOverSequence;
  SidePtr side_;
  CheckpointPtr inner_;
  int64_t length_;
};

class HandOverSequence final : public Sequence {
 public:
  // `standby`: whose format of K and V is that of export_to.
  HandOverSequence(SidePtr side, std::unique_ptr<Sequence> inner, SidePtr standby);
  ~HandOverSequence() override;
  HandOverSequence(const HandOverSequence&) = delete;
  HandOverSequence& operator=(const HandOverSequence&) = delete;

  int64_t length() const override { return inner_->length(); }
  Result<void> reserve(int64_t tokens) override;
  void commit(int rows_kept) override;
  int64_t truncate(int64_t n) override;
  Result<CheckpointPtr> checkpoint() override;
  // Errors too: not_found where the checkpoint's device is gone.
  Result<void> restore(const Checkpoint& checkpoint) override;
  Result<std::unique_ptr<Sequence>> fork(int64_t n) override;
  Result<void> export_to(StateSink& sink) const override;
  Result<void> import_from(StateSource& source) override;

  // Goes over to `side`, or stays as it is with an error.
  Result<void> move_to(const SidePtr& side);
  const SidePtr& side() const { return side_; }
  Sequence& inner() { return *inner_; }

  // The rows of the last step, while it is open how many of them stay; `at_once`: those that its target saw last, where
  // the step was cut for it. What came before them is kept, and cannot be given back by commit.
  void hold(int64_t rows, int64_t at_once) {
    open_rows_ = rows;
    kept_rows_ = rows - at_once;
  }
  int64_t open_rows() const { return open_rows_; }

  // The device erred here: the standby keeps the sequence until it has this length.
  void keep_on_standby_until(int64_t length) { standby_until_ = length; }
  bool may_leave_standby() const { return length() >= standby_until_; }

 private:
  void settle_on(const SidePtr& side, std::unique_ptr<Sequence> inner);

  SidePtr side_, standby_;
  std::unique_ptr<Sequence> inner_;
  int64_t reserved_ = 0;
  int64_t open_rows_ = 0, kept_rows_ = 0;
  int64_t standby_until_ = 0;
};

}  // namespace onw
