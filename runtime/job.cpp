#include "runtime/job.h"

#include <algorithm>

namespace onw {

void Channel::push(TokenEvent event) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  if (event.finish != FinishReason::none) --unfinished_;
  if (callback_) {
    callback_(std::move(event));
    return;
  }
  events_.push_back(std::move(event));
  arrived_.notify_all();
}

std::optional<TokenEvent> Channel::next() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return !events_.empty() || unfinished_ == 0 || closed_; });
  if (events_.empty()) return std::nullopt;
  TokenEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void Channel::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  events_.clear();
  arrived_.notify_all();
}

const CancelToken& RunningStep::begin(std::vector<Choice> choices) {
  const std::lock_guard lock(mutex_);
  choices_ = std::move(choices);
  token_.emplace();
  cancel_if_unwanted();
  return *token_;
}

const CancelToken& RunningStep::begin_unasked() {
  const std::lock_guard lock(mutex_);
  unasked_ = true;
  token_.emplace();
  cancel_if_unwanted();
  return *token_;
}

void RunningStep::end() {
  const std::lock_guard lock(mutex_);
  token_.reset();
  choices_.clear();
  unasked_ = false;
}

void RunningStep::reconsider() {
  const std::lock_guard lock(mutex_);
  cancel_if_unwanted();
}

void RunningStep::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  cancel_if_unwanted();
}

bool RunningStep::stopped() {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

void RunningStep::cancel_if_unwanted() {
  if (!token_) return;
  const auto unwanted = [](const Choice& choice) {
    return choice.first->cancelled[static_cast<size_t>(choice.second)].load();
  };
  if (stopped_ || (!unasked_ && std::ranges::all_of(choices_, unwanted))) token_->cancel();
}

}  // namespace onw
