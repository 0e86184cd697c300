// A model that needs no weights: its logits are a hash of the tokens that came before. Every rule of the contract
// holds, so what the engine does with it can be compared to the bit; and each rule can be made to fail.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/philox.h"
#include "targets/check_step.h"
#include "targets/executable.h"
#include "targets/rest.h"

namespace onw::testing {

// What the fake's states can go back to.
enum class FakeMemory : uint8_t {
  free,       // any length, as full attention
  ring,       // as long as what was overwritten since is less than the slack, as a sliding window
  recurrent,  // only where it stands, as the delta rule
};

struct FakeOptions {
  int64_t vocabulary = 64;
  int64_t max_context = 4096;
  int max_step_rows = 64;
  int max_partial_rows = 16;
  bool mixes = true;
  FakeMemory memory = FakeMemory::free;
  int64_t ring_slack = 8;
  int64_t bytes_per_token = 100;
  int64_t fixed_state_bytes = 0;
  int64_t weights_bytes = 1000;
  int64_t memory_limit_tokens = int64_t{1} << 40;  // of all sequences; beyond it reserve and run fail
  double seconds_per_row = 0;                      // what cost() says
  std::chrono::microseconds even_step{0};          // that each step takes by the fake's clock, whatever its rows
  // Called before each step, on the engine thread; an error ends the step. May block, and may look at the token.
  std::function<Result<void>(const Step&, const CancelToken&)> before_step = {};
  // The bias of one logit: lets a test write the text. Token -> the token to follow it, surely.
  std::map<int32_t, int32_t> follows = {};
  int32_t poison_token = -1;  // rows of this token give a NaN
  std::function<Upkeep()> upkeep = {};
  std::function<void(bool resting)> on_rest = {};
  bool remembers = true;  // false: what follows depends on the last token alone, so texts repeat themselves
};

// Everything a history is to the fake: one number.
inline uint64_t fake_hash(uint64_t before, int32_t token, uint64_t digest) {
  const PhiloxCounter mixed = philox4x32({static_cast<uint32_t>(before), static_cast<uint32_t>(before >> 32),
                                          static_cast<uint32_t>(token), static_cast<uint32_t>(digest ^ (digest >> 32))},
                                         {0x6F6E77, 0});
  return static_cast<uint64_t>(mixed[1]) << 32 | mixed[0];
}

// [vocabulary] logits in [-4, 4) after the history `hash`.
inline void fake_logits(uint64_t hash, std::span<float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(uniform_draw(hash, 7, i) * 8.0 - 4.0);
}

struct FakeCounters {
  int64_t steps = 0;
  int64_t rows = 0;
  int64_t sequences = 0;  // alive
  int64_t tokens = 0;     // reserved, of all sequences alive
  int64_t most_sequences_in_a_step = 0;
};

struct FakeShared {
  FakeOptions options;
  FakeCounters counters;
  std::atomic<double> seconds = 0;  // what the fake's clock says: its steps move it, and nothing else does

  void takes(std::chrono::microseconds time) { seconds += std::chrono::duration<double>(time).count(); }
};

class FakeCheckpoint final : public Checkpoint {
 public:
  FakeCheckpoint(std::vector<uint64_t> hashes, int64_t bytes) : hashes_(std::move(hashes)), bytes_(bytes) {}
  int64_t length() const override { return static_cast<int64_t>(hashes_.size()); }
  int64_t bytes() const override { return bytes_; }
  const std::vector<uint64_t>& hashes() const { return hashes_; }

 private:
  std::vector<uint64_t> hashes_;
  int64_t bytes_;
};

class FakeSequence final : public Sequence {
 public:
  explicit FakeSequence(std::shared_ptr<FakeShared> shared) : shared_(std::move(shared)) {
    ++shared_->counters.sequences;
  }
  ~FakeSequence() override {
    --shared_->counters.sequences;
    shared_->counters.tokens -= reserved_;
  }
  FakeSequence(const FakeSequence&) = delete;
  FakeSequence& operator=(const FakeSequence&) = delete;

  int64_t length() const override { return static_cast<int64_t>(hashes_.size()); }

  Result<void> reserve(int64_t tokens) override {
    const FakeOptions& options = shared_->options;
    if (tokens > options.max_context)
      return error(Code::context_overflow, "{} tokens are beyond the context of {}", tokens, options.max_context);
    if (tokens <= reserved_) return {};
    if (shared_->counters.tokens + tokens - reserved_ > options.memory_limit_tokens)
      return error(Code::out_of_memory, "no room for {} tokens beside {}", tokens, shared_->counters.tokens);
    shared_->counters.tokens += tokens - reserved_;
    reserved_ = tokens;
    return {};
  }

  void commit(int rows_kept) override {
    CHECK(rows_kept >= 0 && rows_kept <= pending_);
    hashes_.resize(hashes_.size() - static_cast<size_t>(pending_ - rows_kept));
    settle();
  }

  int64_t truncate(int64_t n) override {
    settle();
    n = std::min(n, length());
    const FakeMemory memory = shared_->options.memory;
    const bool reachable = n == length() || memory == FakeMemory::free ||
                           (memory == FakeMemory::ring && overwritten_ - n <= shared_->options.ring_slack);
    hashes_.resize(static_cast<size_t>(reachable ? n : 0));
    if (hashes_.empty()) overwritten_ = 0;
    return length();
  }

  Result<CheckpointPtr> checkpoint() override {
    settle();
    return std::make_shared<FakeCheckpoint>(hashes_, 8 + shared_->options.fixed_state_bytes);
  }

  Result<void> restore(const Checkpoint& checkpoint) override {
    const auto& fake = dynamic_cast<const FakeCheckpoint&>(checkpoint);
    hashes_ = fake.hashes();
    pending_ = 0;
    overwritten_ = length();
    return {};
  }

  Result<std::unique_ptr<Sequence>> fork(int64_t n) override {
    settle();
    FakeSequence probe(shared_);  // what truncate would reach
    probe.hashes_ = hashes_;
    probe.overwritten_ = overwritten_;
    if (n > length() || probe.truncate(n) != n)
      return error(Code::invalid_argument, "cannot fork at {} of {}: the longest restorable length is {}", n, length(),
                   probe.length());
    auto child = std::make_unique<FakeSequence>(shared_);
    child->hashes_ = probe.hashes_;
    child->overwritten_ = std::max(overwritten_, n);
    if (n == 0) child->overwritten_ = 0;
    return child;
  }

  Result<void> export_to(StateSink& sink) const override {
    return sink.put("fake.hashes", std::as_bytes(std::span(hashes_)));
  }

  Result<void> import_from(StateSource& source) override {
    auto bytes = source.get("fake.hashes");
    RETURN_IF_ERROR(bytes);
    if (bytes->size() != static_cast<size_t>(source.length()) * sizeof(uint64_t))
      return error(Code::bad_format, "fake.hashes has {} bytes for {} tokens", bytes->size(), source.length());
    hashes_.resize(static_cast<size_t>(source.length()));
    if (!bytes->empty()) std::memcpy(hashes_.data(), bytes->data(), bytes->size());
    pending_ = 0;
    overwritten_ = length();
    return {};
  }

  uint64_t hash() const { return hashes_.empty() ? 0 : hashes_.back(); }

  void hold(std::span<const uint64_t> rows) {
    settle();
    hashes_.insert(hashes_.end(), rows.begin(), rows.end());
    pending_ = static_cast<int>(rows.size());
  }

 private:
  void settle() {
    pending_ = 0;
    overwritten_ = std::max(overwritten_, length());
  }

  std::shared_ptr<FakeShared> shared_;
  std::vector<uint64_t> hashes_;
  int pending_ = 0;          // rows of the last step, not yet settled
  int64_t overwritten_ = 0;  // the longest it ever was: what lies slack behind is gone from a ring
  int64_t reserved_ = 0;
};

class FakeExecutable final : public Executable, public Rests {
 public:
  explicit FakeExecutable(FakeOptions options = {}) : shared_(std::make_shared<FakeShared>()) {
    info_ = {.vocabulary = options.vocabulary,
             .hidden = 4,
             .max_context = options.max_context,
             .max_step_rows = options.max_step_rows,
             .max_partial_rows = options.max_partial_rows,
             .truncates_freely = options.memory == FakeMemory::free};
    shared_->options = std::move(options);
  }

  const ExecutableInfo& info() const override { return info_; }
  bool mixes_prompt_and_decode() const override { return shared_->options.mixes; }
  Cost cost(const StepShape& shape) const override { return {shape.rows * shared_->options.seconds_per_row}; }

  Result<std::unique_ptr<Sequence>> new_sequence() override { return std::make_unique<FakeSequence>(shared_); }

  MemoryNeed need(int64_t tokens, int sequences) const override {
    const FakeOptions& o = shared_->options;
    return {o.weights_bytes, (tokens * o.bytes_per_token + o.fixed_state_bytes) * sequences, 100};
  }

  Result<Outputs> run(const Step& step, const CancelToken& cancel) override {
    RETURN_IF_ERROR(check_step(step, info_, shared_->options.mixes));
    if (shared_->options.before_step) RETURN_IF_ERROR(shared_->options.before_step(step, cancel));
    if (cancel.cancelled()) return error(Code::cancelled, "the step was cancelled");
    for (size_t s = 0; s < step.sequences.size(); ++s) {
      const auto rows = std::ranges::count(step.rows, static_cast<int>(s), &Row::sequence);
      RETURN_IF_ERROR(step.sequences[s]->reserve(step.sequences[s]->length() + rows));
    }
    compute(step);
    count(step);
    shared_->takes(shared_->options.even_step);
    return Outputs{logits_, hidden_};
  }

  void rest(bool resting) override {
    if (shared_->options.on_rest) shared_->options.on_rest(resting);
  }
  Upkeep upkeep() const override { return shared_->options.upkeep ? shared_->options.upkeep() : Upkeep(); }

  // For tests, between steps.
  FakeOptions& options() { return shared_->options; }
  std::shared_ptr<FakeShared> shared() const { return shared_; }

 private:
  void compute(const Step& step) {
    logits_.clear();
    hidden_.clear();
    for (size_t at = 0; at < step.rows.size();) {
      auto& sequence = dynamic_cast<FakeSequence&>(*step.sequences[static_cast<size_t>(step.rows[at].sequence)]);
      uint64_t hash = sequence.hash();
      std::vector<uint64_t> hashes;
      const int index = step.rows[at].sequence;
      for (; at < step.rows.size() && step.rows[at].sequence == index; ++at) {
        hash = fake_hash(hash, step.rows[at].token, step.rows[at].content_digest);
        hashes.push_back(hash);
        output(step.rows[at], hash);
      }
      sequence.hold(hashes);
    }
  }

  void output(const Row& row, uint64_t hash) {
    if (row.wants_hidden)
      for (int i = 0; i < 4; ++i) hidden_.push_back(static_cast<float>(hash >> (16 * i) & 0xFFFF));
    if (!row.wants_logits) return;
    const size_t begin = logits_.size();
    logits_.resize(begin + static_cast<size_t>(info_.vocabulary));
    const std::span<float> logits = std::span(logits_).subspan(begin);
    const FakeOptions& o = shared_->options;
    fake_logits(o.remembers ? hash : fake_hash(0, row.token, 0), logits);
    if (const auto next = o.follows.find(row.token); next != o.follows.end())
      logits[static_cast<size_t>(next->second)] = 1000;
    if (row.token == o.poison_token) logits[1] = std::numeric_limits<float>::quiet_NaN();
  }

  void count(const Step& step) {
    FakeCounters& c = shared_->counters;
    ++c.steps;
    c.rows += static_cast<int64_t>(step.rows.size());
    c.most_sequences_in_a_step = std::max(c.most_sequences_in_a_step, static_cast<int64_t>(step.sequences.size()));
  }

  std::shared_ptr<FakeShared> shared_;
  ExecutableInfo info_;
  std::vector<float> logits_;
  std::vector<float> hidden_;
};

}  // namespace onw::testing
