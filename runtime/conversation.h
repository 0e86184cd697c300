// One Sequence with what it holds, so that the next prompt computes only what is new.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "targets/executable.h"

namespace onw {

// What makes two rows the same: the token, and what stands behind a placeholder (0 for text).
struct TokenKey {
  int32_t token = 0;
  uint64_t content_digest = 0;
  bool operator==(const TokenKey&) const = default;
};

std::vector<TokenKey> text_keys(std::span<const int32_t> tokens);
int64_t common_prefix(std::span<const TokenKey> a, std::span<const TokenKey> b);

// Invariant: the sequence is valid for exactly keys(), and every kept checkpoint for a prefix of keys(). A checkpoint
// of another history must never be restored, so whatever shortens the keys drops the checkpoints beyond.
class Conversation {
 public:
  static Result<Conversation> start(Executable& executable);

  Sequence& sequence() { return *sequence_; }
  std::span<const TokenKey> keys() const { return keys_; }
  int64_t length() const { return static_cast<int64_t>(keys_.size()); }

  // A step has added rows of these keys to the sequence, all committed.
  void append(std::span<const TokenKey> keys);

  // How many of `wanted` are surely kept by sync or by fork; more may be, where a state happens to reach back further.
  int64_t reusable(std::span<const TokenKey> wanted) const;

  // Goes back to the longest restorable prefix of `wanted`: by truncation, or to a checkpoint. Returns its length,
  // which is then length(): rows from there on are to be computed.
  Result<int64_t> sync(std::span<const TokenKey> wanted);

  // A second conversation with the longest restorable prefix of `wanted`; this one stays as it is. Pages are shared.
  Result<Conversation> fork(std::span<const TokenKey> wanted);

  // Keeps this state, to be found by sync and fork. Nothing to do where every length is restorable.
  Result<void> checkpoint();
  bool wants_checkpoints() const { return !truncates_freely_; }
  int64_t checkpoint_bytes() const;

  // Which of two users of a checkpoint was last is told by a clock that the owner advances; lowest goes first.
  void set_clock(uint64_t now) { now_ = now; }
  uint64_t oldest_checkpoint() const;  // its time; the largest number where there is none
  void drop_oldest_checkpoint();

  // Sharing, for the books on memory: conversations of one family are forks of each other. What two of them have in
  // common is shared up to the later of their forks.
  uint64_t family() const { return family_; }
  int64_t forked_at() const { return forked_at_; }

 private:
  struct Kept {
    CheckpointPtr state;
    uint64_t used = 0;
  };
  const Kept* nearest(int64_t length) const;
  void shorten(int64_t length);

  std::unique_ptr<Sequence> sequence_;
  std::vector<TokenKey> keys_;
  std::vector<Kept> kept_;  // ascending lengths
  bool truncates_freely_ = false;
  uint64_t now_ = 0;
  uint64_t family_ = 0;
  int64_t forked_at_ = 0;
};

}  // namespace onw
