#include "cli/bench_fused.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "cli/progress.h"

namespace onw::cli {

std::function<void(const FusedNews&)> FusedWatch::ear() const {
  return [state = state_](const FusedNews& news) {
    const std::lock_guard lock(state->mutex);
    state->made += news.what == FusedNews::What::compiled ? 1 : 0;
    if (news.what == FusedNews::What::compiled) state->tokens = std::max(state->tokens, news.length);
    if (news.what == FusedNews::What::failed) state->why = news.why;
    state->done = state->done || news.what == FusedNews::What::done;
    state->changed.notify_all();
  };
}

std::string FusedWatch::wait() const {
  std::optional<Progress> progress;
  std::unique_lock lock(state_->mutex);
  while (!state_->done) {
    state_->changed.wait_for(lock, std::chrono::seconds(1));
    if (state_->done) break;
    if (!progress) progress.emplace("graphs with attention inside", 0, Progress::Unit::items);
    progress->update(state_->made);
  }
  std::string text;
  if (state_->tokens > 0) text = fmt::format("attention inside the graphs up to {} tokens", state_->tokens);
  if (!state_->why.empty())
    text += fmt::format("{}not {}: {}", text.empty() ? "attention inside the graphs: " : ", ",
                        text.empty() ? "to be had" : "further", state_->why);
  return text;
}

}  // namespace onw::cli
