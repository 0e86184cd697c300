#include "runtime/conversation.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

namespace onw {

std::vector<TokenKey> text_keys(std::span<const int32_t> tokens) {
  std::vector<TokenKey> keys;
  keys.reserve(tokens.size());
  for (const int32_t token : tokens) keys.push_back({token, 0});
  return keys;
}

int64_t common_prefix(std::span<const TokenKey> a, std::span<const TokenKey> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

Result<Conversation> Conversation::start(Executable& executable) {
  static std::atomic<uint64_t> families = 0;
  auto sequence = executable.new_sequence();
  RETURN_IF_ERROR(sequence);
  Conversation conversation;
  conversation.sequence_ = std::move(*sequence);
  conversation.truncates_freely_ = executable.info().truncates_freely;
  conversation.family_ = ++families;
  return conversation;
}

void Conversation::append(std::span<const TokenKey> keys) {
  keys_.insert(keys_.end(), keys.begin(), keys.end());
  CHECK(sequence_->length() == length());
}

// The last checkpoint of at most `length` tokens.
const Conversation::Kept* Conversation::nearest(int64_t length) const {
  const auto after = std::ranges::upper_bound(kept_, length, {}, [](const Kept& kept) { return kept.state->length(); });
  return after == kept_.begin() ? nullptr : &*std::prev(after);
}

int64_t Conversation::reusable(std::span<const TokenKey> wanted) const {
  const int64_t common = common_prefix(keys_, wanted);
  if (truncates_freely_ || common == length()) return common;
  const Kept* kept = nearest(common);
  return kept == nullptr ? 0 : kept->state->length();
}

void Conversation::shorten(int64_t length) {
  keys_.resize(static_cast<size_t>(length));
  std::erase_if(kept_, [length](const Kept& kept) { return kept.state->length() > length; });
  forked_at_ = std::min(forked_at_, length);
}

Result<int64_t> Conversation::sync(std::span<const TokenKey> wanted) {
  const int64_t common = common_prefix(keys_, wanted);
  if (common == length()) return common;
  const int64_t reached = sequence_->truncate(common);
  CHECK(reached >= 0 && reached <= common);
  shorten(common);  // checkpoints up to here are of this history; the nearest may be ahead of what truncation reached
  while (!kept_.empty() && kept_.back().state->length() > reached) {  // the nearest is the last, after shorten
    if (sequence_->restore(*kept_.back().state)) {
      kept_.back().used = now_;
      break;
    }
    kept_.pop_back();  // its device is gone: an earlier one, or what truncation reached, costs time alone
  }
  shorten(sequence_->length());
  return length();
}

Result<Conversation> Conversation::fork(std::span<const TokenKey> wanted) {
  // A sequence can always be forked where it stands; what can be shortened cheaply is forked where it is wanted.
  const int64_t common = common_prefix(keys_, wanted);
  const int64_t at = truncates_freely_ ? common : length();
  auto sequence = sequence_->fork(at);
  RETURN_IF_ERROR(sequence);
  Conversation child;
  child.sequence_ = std::move(*sequence);
  child.keys_.assign(keys_.begin(), keys_.begin() + at);
  child.kept_ = kept_;
  child.truncates_freely_ = truncates_freely_;
  child.now_ = now_;
  child.family_ = family_;
  child.forked_at_ = at;
  RETURN_IF_ERROR(child.sync(wanted));
  return child;
}

Result<void> Conversation::checkpoint() {
  if (truncates_freely_ || length() == 0) return {};
  if (!kept_.empty() && kept_.back().state->length() == length()) return {};
  auto state = sequence_->checkpoint();
  RETURN_IF_ERROR(state);
  CHECK((*state)->length() == length());
  kept_.push_back({std::move(*state), now_});
  return {};
}

int64_t Conversation::checkpoint_bytes() const {
  int64_t bytes = 0;
  for (const Kept& kept : kept_) bytes += kept.state->bytes() / kept.state.use_count();  // forks hold the same ones
  return bytes;
}

uint64_t Conversation::oldest_checkpoint() const {
  uint64_t oldest = std::numeric_limits<uint64_t>::max();
  for (const Kept& kept : kept_) oldest = std::min(oldest, kept.used);
  return oldest;
}

void Conversation::drop_oldest_checkpoint() {
  if (!kept_.empty()) kept_.erase(std::ranges::min_element(kept_, {}, &Kept::used));
}

}  // namespace onw
