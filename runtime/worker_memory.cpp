#include <algorithm>
#include <utility>

#include "runtime/memory.h"
#include "runtime/worker.h"

namespace onw {

std::vector<Conversation*> Worker::running() const {
  std::vector<Conversation*> all;
  for (const auto& session : active_)
    if (session->conversation) all.push_back(&*session->conversation);
  return all;
}

// What running and cached states hold, with what running ones have reserved beyond their length.
int64_t Worker::held_bytes() const {
  std::vector<const Conversation*> all = cache_.conversations();
  int64_t ahead = 0;
  for (const auto& session : active_) {
    if (!session->conversation) continue;
    all.push_back(&*session->conversation);
    const int64_t length = session->conversation->length();
    ahead += state_bytes(*executable_, std::max(session->reserved_tokens, length)) - state_bytes(*executable_, length);
  }
  return state_bytes(*executable_, all) + ahead;
}

// Whether `next` can be computed beside those who run, all of them to the end of the tokens they have now. What is
// cached can go. Alone everybody fits: the context was chosen so.
bool Worker::fits(const Session& next) const {
  if (active_.empty()) return true;
  if (static_cast<int>(active_.size()) + 1 + next.other_choices() > limits_.max_sessions) return false;
  std::vector<const Conversation*> all;
  int64_t ahead = 0;
  for (const auto& session : active_) {
    all.push_back(&*session->conversation);
    ahead += state_bytes(*executable_, session->total()) - state_bytes(*executable_, session->conversation->length());
  }
  return state_bytes(*executable_, all) + ahead + state_bytes(*executable_, next.total()) <= limits_.state_bytes;
}

void Worker::admit() {
  while (!waiting_.empty() && fits(*waiting_.front())) {
    std::unique_ptr<Session> session = std::move(waiting_.front());
    waiting_.pop_front();
    // The last token is computed in any case: its row gives the logits.
    auto state = cache_.acquire(session->tokens().first(static_cast<size_t>(session->total() - 1)), running());
    if (!state) {
      session->finish(FinishReason::error, std::move(state.error()));
      continue;
    }
    const bool first_time = session->in_prompt();
    session->begin(std::move(*state));
    if (first_time) {
      stats_.prompt_tokens += session->usage().prompt_tokens;
      stats_.reused_tokens += session->usage().reused_tokens;
    }
    active_.push_back(std::move(session));
  }
}

// Reserves memory for `tokens`, in whole pages: at the cost of what is cached, then of the youngest sessions, which
// wait and are computed again (to the same bits). Where `session` is the youngest, it is set aside itself.
Result<void> Worker::make_room(Session& session, int64_t tokens) {
  if (tokens <= session.reserved_tokens) return {};
  const int64_t wanted = std::min(whole_pages(tokens), limits_.context_tokens);
  const int64_t before = std::max(session.reserved_tokens, session.conversation->length());
  const int64_t growth = state_bytes(*executable_, wanted) - state_bytes(*executable_, before);
  while (session.conversation) {
    const int64_t held = held_bytes();
    auto refusal = error(Code::out_of_memory,
                         "{} tokens need {} more bytes beside {}, and the limit is {}: free memory, or take a shorter "
                         "context",
                         wanted, growth, held, limits_.state_bytes);
    if (held + growth <= limits_.state_bytes) {
      auto reserved = session.conversation->sequence().reserve(wanted);
      if (reserved) {
        session.reserved_tokens = wanted;
        count_bytes();
        return {};
      }
      if (reserved.error().code != Code::out_of_memory) return reserved;
      refusal = Failure(std::move(reserved.error()));
    }
    if (cache_.drop_oldest(running())) continue;
    if (running().size() == 1) return refusal;
    set_aside(*youngest());
  }
  return {};
}

// Of those with a state: there is one while anybody asks for room.
Session* Worker::youngest() const {
  const auto found = std::find_if(active_.rbegin(), active_.rend(),
                                  [](const auto& session) { return session->conversation.has_value(); });
  return found->get();
}

void Worker::set_aside(Session& session) {
  ++stats_.preemptions;
  session.conversation.reset();
  session.reserved_tokens = 0;
  const auto place = std::ranges::find(active_, &session, [](const auto& owner) { return owner.get(); });
  waiting_.push_front(std::move(*place));
  active_.erase(place);
}

// Back under the limits, after a state was kept.
void Worker::trim() {
  while (held_bytes() > limits_.state_bytes && cache_.drop_oldest(running())) {
  }
  while (state_bytes(*executable_, cache_.conversations()) > limits_.cache_bytes && cache_.drop_oldest({})) {
  }
}

// For the statistics: when sessions come, go or grow by a page, because it compares all tokens.
void Worker::count_bytes() {
  std::vector<const Conversation*> active;
  for (const Conversation* conversation : running()) active.push_back(conversation);
  stats_.active_bytes = state_bytes(*executable_, active);
  stats_.cached_bytes = state_bytes(*executable_, cache_.conversations());
}

}  // namespace onw
