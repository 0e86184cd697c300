// States kept between requests, so that a conversation goes on where it stood and a shared beginning is computed once.
// Least recently used out: whole conversations, and single checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/conversation.h"
#include "targets/executable.h"

namespace onw {

class PrefixCache {
 public:
  explicit PrefixCache(Executable& executable) : executable_(executable) {}

  // A conversation that holds as long a prefix of `wanted` as can be had: one of the cache that goes on as it is, a
  // fork of one of the cache or of `running`, or a new one. Its length() is what was reused. Errors: of new_sequence.
  Result<Conversation> acquire(std::span<const TokenKey> wanted, std::span<Conversation* const> running);

  // Keeps a finished conversation. One that another of the cache contains is not kept twice.
  void put(Conversation conversation);

  // Drops what was used longest ago: a conversation of the cache, or a checkpoint of it or of `running`. False where
  // there is nothing left.
  bool drop_oldest(std::span<Conversation* const> running);

  size_t size() const { return entries_.size(); }
  std::vector<const Conversation*> conversations() const;

 private:
  struct Entry {
    Conversation conversation;
    uint64_t used = 0;
  };
  std::optional<Conversation> take(Conversation& conversation);
  Result<Conversation> fork_of(Conversation& conversation, std::span<const TokenKey> wanted);
  bool contains(const Conversation& longer, const Conversation& shorter) const;

  Executable& executable_;
  std::vector<Entry> entries_;
  uint64_t clock_ = 0;
};

}  // namespace onw
