#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/scalar.h"
#include "runtime/philox.h"

namespace onw {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// The nearest float that is finite: penalties may push a huge logit over the edge.
float finite(float x) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return std::clamp(x, -kLargest, kLargest);
}

// The likelier first; equal ones by id.
bool likelier(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

int32_t likeliest(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());  // the first of equal ones
}

double total_weight(std::span<const Candidate> candidates) {
  double total = 0;
  for (const Candidate& c : candidates) total += c.weight;
  return total;
}

void keep_top_k(std::vector<Candidate>& candidates, int top_k) {
  const auto k = static_cast<size_t>(top_k);
  if (top_k == 0 || k >= candidates.size()) return;
  std::ranges::nth_element(candidates, candidates.begin() + top_k, likelier);
  candidates.resize(k);
  std::ranges::sort(candidates, {}, &Candidate::id);  // nth_element leaves an order of the library's own
}

// The fewest of the likeliest whose weights sum to at least `top_p` of all. A heap, because few are taken of many.
void keep_top_p(std::vector<Candidate>& candidates, float top_p) {
  if (top_p >= 1.0F) return;
  const double enough = static_cast<double>(top_p) * total_weight(candidates);
  const auto later = [](const Candidate& a, const Candidate& b) { return likelier(b, a); };
  std::ranges::make_heap(candidates, later);
  double sum = 0;
  auto rest = candidates.end();
  do {
    std::pop_heap(candidates.begin(), rest, later);
    --rest;
    sum += rest->weight;
  } while (sum < enough && rest != candidates.begin());
  candidates.erase(candidates.begin(), rest);
  std::ranges::reverse(candidates);
}

void keep_min_p(std::vector<Candidate>& candidates, float min_p) {
  if (min_p <= 0.0F) return;
  std::erase_if(candidates, [min_p](const Candidate& c) { return c.weight < min_p; });  // the largest weight is 1
}

// Log-softmax of the model's own row, at `id` and at the `count` likeliest.
void add_logprobs(std::span<const float> logits, int count, Draw& draw) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += scalar::exp(logit - largest);
  const double log_sum = std::log(sum);
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(largest) - log_sum);
  };
  draw.logprob = logprob(logits[static_cast<size_t>(draw.id)]);
  if (count == 0) return;
  std::vector<Candidate> all(logits.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = {logits[i], static_cast<int32_t>(i)};
  const auto n = std::min(static_cast<size_t>(count), all.size());
  std::ranges::partial_sort(all, all.begin() + static_cast<ptrdiff_t>(n), likelier);
  for (size_t i = 0; i < n; ++i) draw.top.push_back({all[i].id, logprob(all[i].weight)});
}

Result<void> check_finite(std::span<const float> logits) {
  const auto bad = std::ranges::find_if(logits, [](float x) { return !std::isfinite(x); });
  if (bad == logits.end()) return {};
  return error(Code::numerics, "the logit of token {} is {}: the model's numbers are broken, the answer ends here",
               bad - logits.begin(), *bad);
}

}  // namespace

Result<void> check(const SamplingParams& p, int64_t vocabulary) {
  const auto outside = [](const char* name, double value, const char* range) {
    return error(Code::invalid_argument, "{} is {}, but must be {}", name, value, range);
  };
  // Written so that NaN fails too.
  if (!(p.temperature >= 0 && p.temperature <= 100)) return outside("temperature", p.temperature, "in [0, 100]");
  if (p.top_k < 0) return outside("top_k", p.top_k, "0 (off) or positive");
  if (!(p.top_p > 0 && p.top_p <= 1)) return outside("top_p", p.top_p, "in (0, 1]");
  if (!(p.min_p >= 0 && p.min_p <= 1)) return outside("min_p", p.min_p, "in [0, 1]");
  if (!(p.repetition_penalty >= 0.01F && p.repetition_penalty <= 100))
    return outside("repetition_penalty", p.repetition_penalty, "in [0.01, 100]");
  if (!(std::fabs(p.presence_penalty) <= 100)) return outside("presence_penalty", p.presence_penalty, "in [-100, 100]");
  if (!(std::fabs(p.frequency_penalty) <= 100))
    return outside("frequency_penalty", p.frequency_penalty, "in [-100, 100]");
  for (const auto& [id, bias] : p.logit_bias) {
    if (id < 0 || id >= vocabulary)
      return error(Code::invalid_argument, "logit_bias names token {}, but the vocabulary has {}", id, vocabulary);
    if (!(std::fabs(bias) <= 1e6F)) return outside("logit_bias", bias, "in [-1e6, 1e6]");
  }
  return {};
}

Sampler::Sampler(SamplingParams params, uint64_t seed, uint32_t choice)
    : params_(std::move(params)), seed_(seed), choice_(choice) {}

void Sampler::see_prompt(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) seen_.try_emplace(token, 0);
}

void Sampler::see_answer(int32_t token) { ++seen_[token]; }

void Sampler::apply_penalties() {
  for (const auto& [id, count] : seen_) {
    float& logit = logits_[static_cast<size_t>(id)];
    const float repetition = params_.repetition_penalty;
    if (repetition != 1.0F) logit = finite(logit > 0 ? logit / repetition : logit * repetition);
    if (count == 0) continue;
    logit = finite(logit - (params_.presence_penalty + params_.frequency_penalty * static_cast<float>(count)));
  }
  for (const auto& [id, bias] : params_.logit_bias) {
    float& logit = logits_[static_cast<size_t>(id)];
    logit = finite(logit + bias);
  }
}

Result<void> Sampler::apply_mask(LogitMask& mask) {
  allowed_.assign((logits_.size() + 31) / 32, 0);
  RETURN_IF_ERROR(mask.allow(allowed_));
  for (size_t i = 0; i < logits_.size(); ++i)
    if ((allowed_[i / 32] >> (i % 32) & 1U) == 0) logits_[i] = kForbidden;
  return {};
}

Result<Draw> Sampler::draw(std::span<const float> logits, int64_t position, LogitMask* mask, int logprobs) {
  RETURN_IF_ERROR(check_finite(logits));
  logits_.assign(logits.begin(), logits.end());
  apply_penalties();
  if (mask != nullptr) RETURN_IF_ERROR(apply_mask(*mask));
  auto id = pick(position);
  RETURN_IF_ERROR(id);
  Draw draw{.id = *id};
  if (logprobs >= 0) add_logprobs(logits, logprobs, draw);
  return draw;
}

Result<int32_t> Sampler::pick(int64_t position) {
  const int32_t best = likeliest(logits_);
  const float largest = logits_[static_cast<size_t>(best)];
  if (largest == kForbidden)
    return error(Code::internal, "the grammar allows no token at position {}: the answer ends here", position);
  if (params_.temperature == 0.0F || params_.top_k == 1) return best;

  candidates_.clear();
  for (size_t i = 0; i < logits_.size(); ++i)
    if (logits_[i] != kForbidden) candidates_.push_back({logits_[i], static_cast<int32_t>(i)});
  keep_top_k(candidates_, params_.top_k);
  for (Candidate& c : candidates_) c.weight = scalar::exp((c.weight - largest) / params_.temperature);
  keep_top_p(candidates_, params_.top_p);
  keep_min_p(candidates_, params_.min_p);

  const double mark = uniform_draw(seed_, choice_, static_cast<uint64_t>(position)) * total_weight(candidates_);
  double sum = 0;
  for (const Candidate& c : candidates_) {
    sum += c.weight;
    if (sum > mark) return c.id;
  }
  return best;  // mark rounded up to the whole
}

}  // namespace onw
