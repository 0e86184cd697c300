#include "cli/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace onw::cli {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) now[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(now);
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before_last[j - 2] + 1);
    }
  }
  return now[b.size()];
}

std::string_view suggestion(std::string_view word, std::span<const std::string_view> candidates) {
  constexpr size_t kLongest = 40;  // longer words are no slip of a finger
  const auto letters = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  if (letters.empty() || word.size() > kLongest) return {};
  const auto begun = [&](std::string_view c) { return letters.size() > 1 && c.starts_with(word); };
  if (std::ranges::count_if(candidates, begun) == 1) return *std::ranges::find_if(candidates, begun);
  std::string_view best;
  size_t least = std::max<size_t>(1, letters.size() / 3) + 1;
  for (const auto candidate : candidates)
    if (const size_t distance = edit_distance(word, candidate); distance < least) {
      least = distance;
      best = candidate;
    }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  const auto best = suggestion(word, candidates);
  return best.empty() ? std::string() : fmt::format(" Did you mean {}?", best);
}

}  // namespace onw::cli
