#include "text/stop_filter.h"

#include <algorithm>
#include <utility>

namespace onw {

StopFilter::StopFilter(std::vector<std::string> stops, std::vector<std::string> tags)
    : stops_(std::move(stops)), tags_(std::move(tags)) {
  std::erase(stops_, "");
  std::erase(tags_, "");
  std::ranges::sort(stops_, std::ranges::greater(), &std::string::size);
}

std::string StopFilter::push(std::string_view text) {
  pending_ += text;
  return advance(/*last=*/false);
}

std::string StopFilter::finish() {
  std::string shown = advance(/*last=*/true);
  if (!stopped_) shown += std::exchange(held_, {});
  return shown;
}

std::string StopFilter::advance(bool last) {
  std::string shown;
  size_t at = 0;
  const std::string text = std::exchange(pending_, {});
  while (at < text.size() && !stopped_) {
    size_t tag_size = 0;
    const Next next = look_for_tag(std::string_view(text).substr(at), last, tag_size);
    if (next == Next::wait) {
      pending_ = text.substr(at);
      return shown;
    }
    if (next == Next::tag) {
      shown += std::exchange(held_, {}) + text.substr(at, tag_size);
      at += tag_size;
    } else {
      take_byte(text[at++], shown);
    }
  }
  return shown;
}

StopFilter::Next StopFilter::look_for_tag(std::string_view rest, bool last, size_t& tag_size) const {
  Next next = Next::take;
  for (const std::string& tag : tags_) {
    if (rest.starts_with(tag)) {
      tag_size = std::max(tag_size, tag.size());
      next = Next::tag;
    } else if (next == Next::take && !last && tag.starts_with(rest)) {
      next = Next::wait;
    }
  }
  return next;
}

void StopFilter::take_byte(char c, std::string& shown) {
  held_ += c;
  for (const std::string& stop : stops_) {
    if (!held_.ends_with(stop)) continue;
    shown += held_.substr(0, held_.size() - stop.size());
    held_.clear();
    stop_ = stop;
    stopped_ = true;
    return;
  }
  const auto begins_stop = [&](std::string_view tail) {
    return std::ranges::any_of(stops_, [&](const std::string& stop) { return stop.starts_with(tail); });
  };
  size_t safe = 0;
  while (safe < held_.size() && !begins_stop(std::string_view(held_).substr(safe))) ++safe;
  shown += held_.substr(0, safe);
  held_.erase(0, safe);
}

}  // namespace onw
