#include "runtime/prefix_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace onw {

Result<Conversation> PrefixCache::acquire(std::span<const TokenKey> wanted, std::span<Conversation* const> running) {
  ++clock_;
  Conversation* best = nullptr;
  int64_t reusable = 0;
  auto best_entry = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const int64_t found = entry->conversation.reusable(wanted);
    if (found <= reusable) continue;
    best = &entry->conversation;
    best_entry = entry;
    reusable = found;
  }
  for (Conversation* conversation : running) {
    const int64_t found = conversation->reusable(wanted);
    if (found <= reusable) continue;
    best = conversation;
    best_entry = entries_.end();
    reusable = found;
  }
  if (best == nullptr) return Conversation::start(executable_);

  best->set_clock(clock_);
  if (best_entry != entries_.end() && reusable == best->length()) {
    Conversation taken = std::move(*best);
    entries_.erase(best_entry);
    // Where the last answer ended, an edited question may branch off. Without memory for it the edit costs time alone.
    (void)taken.checkpoint();
    return taken;
  }
  if (best_entry != entries_.end()) best_entry->used = clock_;
  auto fork = best->fork(wanted);
  return fork ? std::move(fork) : Conversation::start(executable_);
}

bool PrefixCache::contains(const Conversation& longer, const Conversation& shorter) const {
  return executable_.info().truncates_freely && common_prefix(longer.keys(), shorter.keys()) == shorter.length();
}

void PrefixCache::put(Conversation conversation) {
  if (conversation.length() == 0) return;
  ++clock_;
  for (Entry& entry : entries_) {
    if (!contains(entry.conversation, conversation)) continue;
    entry.used = clock_;
    return;
  }
  std::erase_if(entries_, [&](const Entry& entry) { return contains(conversation, entry.conversation); });
  conversation.set_clock(clock_);
  entries_.push_back({std::move(conversation), clock_});
}

bool PrefixCache::drop_oldest(std::span<Conversation* const> running) {
  constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  uint64_t oldest = kNever;
  Conversation* with_checkpoint = nullptr;
  auto whole = entries_.end();
  const auto look_at_checkpoints = [&](Conversation& conversation) {
    if (conversation.oldest_checkpoint() >= oldest) return;
    oldest = conversation.oldest_checkpoint();
    with_checkpoint = &conversation;
    whole = entries_.end();
  };
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    look_at_checkpoints(entry->conversation);
    if (entry->used >= oldest) continue;
    oldest = entry->used;
    with_checkpoint = nullptr;
    whole = entry;
  }
  for (Conversation* conversation : running) look_at_checkpoints(*conversation);
  if (oldest == kNever) return false;
  if (whole != entries_.end()) {
    entries_.erase(whole);
  } else {
    with_checkpoint->drop_oldest_checkpoint();
  }
  return true;
}

std::vector<const Conversation*> PrefixCache::conversations() const {
  std::vector<const Conversation*> all;
  for (const Entry& entry : entries_) all.push_back(&entry.conversation);
  return all;
}

}  // namespace onw
