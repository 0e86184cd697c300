#include "runtime/prefix_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace onw {

Result<Conversation> PrefixCache::acquire(std::span<const TokenKey> wanted, std::span<Conversation* const> running) {
  ++clock_;
  std::vector<Conversation*> all(running.begin(), running.end());
  for (Entry& entry : entries_) all.push_back(&entry.conversation);
  Conversation* surest = nullptr;   // keeps the most for certain
  Conversation* nearest = nullptr;  // has the most in common, whether or not it can go back there
  int64_t sure = 0, common = 0;
  for (Conversation* conversation : all) {
    if (const int64_t kept = conversation->reusable(wanted); kept > sure) surest = conversation, sure = kept;
    const int64_t shared = common_prefix(conversation->keys(), wanted);
    if (shared > common) nearest = conversation, common = shared;
  }
  if (surest != nullptr && sure == surest->length())
    if (auto taken = take(*surest)) return *std::move(taken);
  if (common > sure) {
    auto fork = fork_of(*nearest, wanted);
    if (fork && fork->length() > sure) return fork;
  }
  if (surest != nullptr)
    if (auto fork = fork_of(*surest, wanted)) return fork;
  return Conversation::start(executable_);
}

// Out of the cache, to go on where it ended; none where it is not the cache's.
std::optional<Conversation> PrefixCache::take(Conversation& conversation) {
  const auto entry = std::ranges::find(entries_, &conversation, [](const Entry& entry) { return &entry.conversation; });
  if (entry == entries_.end()) return std::nullopt;
  Conversation taken = std::move(conversation);
  entries_.erase(entry);
  taken.set_clock(clock_);
  // Where the last answer ended, an edited question may branch off. Without memory for it the edit costs time alone.
  (void)taken.checkpoint();
  return taken;
}

Result<Conversation> PrefixCache::fork_of(Conversation& conversation, std::span<const TokenKey> wanted) {
  for (Entry& entry : entries_)
    if (&entry.conversation == &conversation) entry.used = clock_;
  conversation.set_clock(clock_);
  return conversation.fork(wanted);
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
