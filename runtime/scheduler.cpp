#include "runtime/scheduler.h"

#include <algorithm>
#include <utility>

namespace onw {
namespace {

constexpr int kLeastPromptRows = 16;  // one chunk of the delta rule; below that weights are read for too few rows

}  // namespace

std::vector<Share> Scheduler::plan(std::span<const Demand> demands) {
  CHECK(!demands.empty());
  std::erase_if(served_, [&](const auto& entry) {
    return std::ranges::find(demands, entry.first, &Demand::session) == demands.end();
  });
  std::vector<Share> shares = limits_.mixes ? plan_mixed(demands) : plan_alternating(demands);
  for (const Share& share : shares) served_[demands[share.demand].session] = ++tick_;
  return shares;
}

uint64_t Scheduler::last_served(const Demand& demand) const {
  const auto served = served_.find(demand.session);
  return served == served_.end() ? 0 : served->second;
}

// Halves `prompt_rows` until a step with them lasts no longer than the bound, but never below a few, so that prompts
// advance. A target that knows no cost says 0.
int Scheduler::within_latency(int prompt_rows, const StepShape& beside) const {
  const auto seconds = [&](int rows) {
    StepShape shape = beside;
    shape.rows += rows;
    return cost_(shape).seconds;
  };
  while (prompt_rows > kLeastPromptRows && seconds(prompt_rows) > limits_.latency_s)
    prompt_rows = std::max(prompt_rows / 2, kLeastPromptRows);
  return prompt_rows;
}

std::vector<Share> Scheduler::plan_mixed(std::span<const Demand> demands) {
  std::vector<size_t> decoding, prompts;
  int64_t depth = 0;
  for (size_t i = 0; i < demands.size(); ++i) {
    (demands[i].decoding ? decoding : prompts).push_back(i);
    depth += demands[i].depth / static_cast<int64_t>(demands.size());
  }
  // Should there be more than a step holds: those who waited longest, and a place stays free for prompts.
  const size_t places = static_cast<size_t>(std::max(1, limits_.max_step_rows - (prompts.empty() ? 0 : 1)));
  std::ranges::sort(decoding, {}, [&](size_t i) { return std::pair(last_served(demands[i]), i); });
  if (decoding.size() > places) decoding.resize(places);
  std::vector<Share> shares;
  auto spare = static_cast<int64_t>(places - decoding.size());
  int decode_rows = 0;
  for (const size_t i : decoding) {
    const int64_t drafted = std::min(demands[i].rows - 1, spare);
    shares.push_back({i, static_cast<int>(1 + drafted)});
    spare -= drafted;
    decode_rows += shares.back().rows;
  }

  const auto decoders = static_cast<int>(decoding.size());
  int left = std::min(limits_.prompt_rows, limits_.max_step_rows - decode_rows);
  if (decode_rows > 0) left = within_latency(left, {decode_rows, decoders + 1, depth, decode_rows + 1});
  std::ranges::sort(prompts, {}, [&](size_t i) { return std::pair(demands[i].rows, i); });
  auto others = static_cast<int>(prompts.size());
  for (const size_t i : prompts) {
    const int even_part = (left + others - 1) / others;
    const int rows = static_cast<int>(std::min<int64_t>(demands[i].rows, even_part));
    if (rows > 0) shares.push_back({i, rows});
    left -= rows;
    --others;
  }
  return shares;
}

std::vector<Share> Scheduler::plan_alternating(std::span<const Demand> demands) {
  const auto decoders = static_cast<size_t>(std::ranges::count(demands, true, &Demand::decoding));
  const bool prompt_turn = decoders == 0 || (decoders < demands.size() && decodes_since_prompt_ >= decoders);
  const Demand* chosen = nullptr;
  for (const Demand& demand : demands) {
    if (demand.decoding == prompt_turn) continue;
    if (chosen == nullptr || last_served(demand) < last_served(*chosen)) chosen = &demand;
  }
  const auto index = static_cast<size_t>(chosen - demands.data());
  decodes_since_prompt_ = prompt_turn ? 0 : decodes_since_prompt_ + 1;
  if (!prompt_turn) return {{index, static_cast<int>(std::min<int64_t>(chosen->rows, limits_.max_step_rows))}};

  int rows = std::min(limits_.prompt_rows, limits_.max_step_rows);
  if (decoders > 0) rows = within_latency(rows, {0, 1, chosen->depth, 1});  // the others wait for this step
  return {{index, static_cast<int>(std::min<int64_t>(chosen->rows, rows))}};
}

}  // namespace onw
