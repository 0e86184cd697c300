// The fake with one promise broken, to see that the conformance tests notice.
#pragma once

#include <chrono>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "runtime/testing/fake_executable.h"

namespace onw::testing {

enum class Flaw : uint8_t {
  none,
  sees_its_chunk,
  sees_its_segment,
  sees_its_neighbours,
  mixes_up_turns,
  logits_for_all_rows,
  no_hidden_rows,
  forks_share_one_state,
  forks_miss_a_token,
  truncation_leaves_the_tail,
  restores_another_state,
  keeps_rejected_rows,
  ignores_cancel,
  cancelled_step_stays,
  late_cancel_stays,
  accepts_any_token,
  refused_step_stays,
  takes_too_many_rows,
  reserve_forgets,
  two_need_no_more_than_one,
  exports_another_state,
  imports_anything,
};

struct FlawName {
  Flaw flaw;
  const char* name;
  const char* noticed_by;
};

inline constexpr FlawName kFlaws[] = {
    {Flaw::sees_its_chunk, "sees_its_chunk", "one_shot_equals_token_by_token"},
    {Flaw::sees_its_segment, "sees_its_segment", "uneven_segments_change_nothing"},
    {Flaw::sees_its_neighbours, "sees_its_neighbours", "neighbours_in_a_step_change_nothing"},
    {Flaw::mixes_up_turns, "mixes_up_turns", "sequences_that_take_turns_do_not_disturb_each_other"},
    {Flaw::logits_for_all_rows, "logits_for_all_rows", "only_the_rows_that_want_logits_have_them"},
    {Flaw::no_hidden_rows, "no_hidden_rows", "hidden_states_come_where_wanted"},
    {Flaw::forks_share_one_state, "forks_share_one_state", "forks_go_their_own_way"},
    {Flaw::forks_miss_a_token, "forks_miss_a_token", "a_fork_shares_any_restorable_beginning"},
    {Flaw::truncation_leaves_the_tail, "truncation_leaves_the_tail", "truncation_forgets_the_tail_and_nothing_else"},
    {Flaw::restores_another_state, "restores_another_state", "checkpoints_bring_a_state_back"},
    {Flaw::keeps_rejected_rows, "keeps_rejected_rows", "commit_keeps_a_part_of_a_step"},
    {Flaw::ignores_cancel, "ignores_cancel", "a_cancelled_step_leaves_everything_as_before"},
    {Flaw::cancelled_step_stays, "cancelled_step_stays", "a_cancelled_step_leaves_everything_as_before"},
    {Flaw::late_cancel_stays, "late_cancel_stays", "a_step_cancelled_while_it_runs_happened_wholly_or_not_at_all"},
    {Flaw::accepts_any_token, "accepts_any_token",
     "rows_that_break_the_rules_are_refused_and_leave_everything_as_before"},
    {Flaw::refused_step_stays, "refused_step_stays",
     "rows_that_break_the_rules_are_refused_and_leave_everything_as_before"},
    {Flaw::takes_too_many_rows, "takes_too_many_rows", "a_step_takes_as_many_rows_as_promised_and_no_more"},
    {Flaw::reserve_forgets, "reserve_forgets", "reserve_makes_room_and_changes_nothing"},
    {Flaw::two_need_no_more_than_one, "two_need_no_more_than_one", "need_and_cost_grow_with_what_is_asked"},
    {Flaw::exports_another_state, "exports_another_state", "an_exported_state_goes_on_elsewhere"},
    {Flaw::imports_anything, "imports_anything", "an_exported_state_goes_on_elsewhere"},
};

inline void PrintTo(const FlawName& flaw, std::ostream* out) { *out << flaw.name; }

// The last token becomes another one.
inline void spoil(FakeSequence& sequence) {
  if (sequence.length() == 0) return;
  sequence.truncate(sequence.length() - 1);
  const uint64_t other = 0xBAD;
  sequence.hold({&other, 1});
  sequence.commit(1);
}

class BrokenSequence final : public Sequence {
 public:
  BrokenSequence(Flaw flaw, std::shared_ptr<FakeSequence> inner) : flaw_(flaw), inner_(std::move(inner)) {}

  FakeSequence& inner() { return *inner_; }
  int64_t length() const override { return inner_->length(); }

  Result<void> reserve(int64_t tokens) override {
    if (flaw_ == Flaw::reserve_forgets) inner_->truncate(inner_->length() / 2);
    return inner_->reserve(tokens);
  }

  void commit(int rows_kept) override {
    if (flaw_ != Flaw::keeps_rejected_rows) inner_->commit(rows_kept);
  }

  int64_t truncate(int64_t n) override {
    const bool shorter = n < length();
    const int64_t reached = inner_->truncate(n);
    if (flaw_ == Flaw::truncation_leaves_the_tail && shorter) spoil(*inner_);
    return reached;
  }

  Result<CheckpointPtr> checkpoint() override { return inner_->checkpoint(); }

  Result<void> restore(const Checkpoint& checkpoint) override {
    auto restored = inner_->restore(checkpoint);
    if (flaw_ == Flaw::restores_another_state) spoil(*inner_);
    return restored;
  }

  Result<std::unique_ptr<Sequence>> fork(int64_t n) override {
    if (flaw_ == Flaw::forks_share_one_state && n == length()) return std::make_unique<BrokenSequence>(flaw_, inner_);
    auto fork = inner_->fork(n);
    RETURN_IF_ERROR(fork);
    auto child = std::make_unique<BrokenSequence>(
        flaw_, std::shared_ptr<FakeSequence>(dynamic_cast<FakeSequence*>(fork->release())));
    if (flaw_ == Flaw::forks_miss_a_token) spoil(child->inner());
    return child;
  }

  Result<void> export_to(StateSink& sink) const override { return inner_->export_to(sink); }

  Result<void> import_from(StateSource& source) override {
    auto imported = inner_->import_from(source);
    if (flaw_ == Flaw::exports_another_state) spoil(*inner_);
    return flaw_ == Flaw::imports_anything ? Result<void>() : imported;
  }

 private:
  Flaw flaw_;
  std::shared_ptr<FakeSequence> inner_;
};

class BrokenExecutable final : public Executable {
 public:
  explicit BrokenExecutable(Flaw flaw)
      : flaw_(flaw), inner_({.max_step_rows = flaw == Flaw::takes_too_many_rows ? 100 : 64}), info_(inner_.info()) {
    info_.max_step_rows = 64;
  }

  const ExecutableInfo& info() const override { return info_; }
  bool mixes_prompt_and_decode() const override { return true; }
  Cost cost(const StepShape& shape) const override { return inner_.cost(shape); }
  MemoryNeed need(int64_t tokens, int sequences) const override {
    return inner_.need(tokens, flaw_ == Flaw::two_need_no_more_than_one ? 1 : sequences);
  }

  Result<std::unique_ptr<Sequence>> new_sequence() override {
    return std::make_unique<BrokenSequence>(flaw_, new_inner());
  }

  Result<Outputs> run(const Step& step, const CancelToken& cancel) override {
    std::vector<Sequence*> inner;
    for (Sequence* sequence : step.sequences)
      inner.push_back(sequence == nullptr ? nullptr : &dynamic_cast<BrokenSequence&>(*sequence).inner());
    std::vector<Row> rows(step.rows.begin(), step.rows.end());
    for (Row& row : rows) {
      if (flaw_ == Flaw::accepts_any_token) row.token = std::clamp<int32_t>(row.token, 0, 63);
      if (flaw_ == Flaw::logits_for_all_rows) row.wants_logits = true;
      if (flaw_ == Flaw::no_hidden_rows) row.wants_hidden = false;
    }
    if (flaw_ == Flaw::mixes_up_turns && inner.size() == 1 && inner.front() != nullptr) {
      if (last_ != nullptr && last_ != inner.front()) spoil(dynamic_cast<FakeSequence&>(*inner.front()));
      last_ = inner.front();
    }
    return spoilt(step, run_inner({.sequences = inner, .rows = rows}, cancel));
  }

 private:
  std::shared_ptr<FakeSequence> new_inner() { return std::make_shared<FakeSequence>(inner_.shared()); }

  Result<Outputs> run_inner(const Step& step, const CancelToken& cancel) {
    if (flaw_ == Flaw::late_cancel_stays) {
      auto out = inner_.run(step, CancelToken());
      for (int ms = 0; step.rows.size() > 20 && ms < 50 && !cancel.cancelled(); ++ms)  // gives the canceller its chance
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!cancel.cancelled()) return out;
      return error(Code::cancelled, "too late to say so");
    }
    if (flaw_ == Flaw::ignores_cancel || flaw_ == Flaw::cancelled_step_stays) {
      auto out = inner_.run(step, CancelToken());
      if (flaw_ == Flaw::cancelled_step_stays && cancel.cancelled()) return error(Code::cancelled, "and yet it moves");
      return out;
    }
    auto out = inner_.run(step, cancel);
    if (flaw_ == Flaw::refused_step_stays && !out && step.rows.size() > 1) {
      Sequence* const first = step.sequences.front();
      (void)inner_.run({.sequences = {&first, 1}, .rows = step.rows.first(1)}, cancel);
    }
    return out;
  }

  // What the flaws do to logits after a step.
  Result<Outputs> spoilt(const Step& step, Result<Outputs> out) {
    if (!out) return out;
    const bool spoil_logits = (flaw_ == Flaw::sees_its_chunk && step.rows.size() > 1) ||
                              (flaw_ == Flaw::sees_its_segment && step.rows.size() == 13) ||
                              (flaw_ == Flaw::sees_its_neighbours && step.sequences.size() > 1);
    if (!spoil_logits || out->logits.empty()) return out;
    logits_.assign(out->logits.begin(), out->logits.end());
    logits_.back() += 1e-3F;
    return Outputs{logits_, out->hidden};
  }

  Flaw flaw_;
  FakeExecutable inner_;
  ExecutableInfo info_;
  std::vector<float> logits_;
  const Sequence* last_ = nullptr;
};

}  // namespace onw::testing
