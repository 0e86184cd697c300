#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/isa.h"
#include "kernels/rowops/rowops.h"
#include "runtime/philox.h"
#include "runtime/sampling_limits.h"

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

// Softmax by the kernels of this machine, which give the same bits on every one.
void softmax(std::span<const float> x, std::vector<float>& out) {
  static const RowOps& ops = row_ops(active_isa().value_or(Isa::generic));
  out.resize(x.size());
  ops.softmax(x.data(), static_cast<int64_t>(x.size()), out.data());
}

// The k likeliest, by ascending id. A heap with the least likely on top, which few of many tokens pass.
void top_k(std::span<const float> logits, int k, std::vector<Candidate>& kept) {
  kept.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate c = {logits[i], static_cast<int32_t>(i)};
    const bool full = kept.size() == static_cast<size_t>(k);
    if (c.weight == kForbidden || (full && !likelier(c, kept.front()))) continue;
    if (full) {
      std::ranges::pop_heap(kept, likelier);
      kept.pop_back();
    }
    kept.push_back(c);
    std::ranges::push_heap(kept, likelier);
  }
  std::ranges::sort(kept, {}, &Candidate::id);
}

// The fewest of the likeliest whose weights sum to at least `enough`, likeliest first; false where all do not.
bool likeliest_until(double enough, std::vector<Candidate>& candidates) {
  const auto later = [](const Candidate& a, const Candidate& b) { return likelier(b, a); };
  std::ranges::make_heap(candidates, later);
  double sum = 0;
  auto rest = candidates.end();
  while (sum < enough && rest != candidates.begin()) {
    std::pop_heap(candidates.begin(), rest, later);
    --rest;
    sum += rest->weight;
  }
  candidates.erase(candidates.begin(), rest);
  std::ranges::reverse(candidates);
  return sum >= enough;
}

// `all` cut by top_p, likeliest first. What is far below the likeliest is looked at only where the rest does not do.
void keep_top_p(std::span<const Candidate> all, float top_p, std::vector<Candidate>& kept) {
  const double enough = static_cast<double>(top_p) * total_weight(all);
  const float largest = std::ranges::max(all, {}, &Candidate::weight).weight;
  for (float least = largest / 256;; least /= 256) {
    kept.clear();
    for (const Candidate& c : all)
      if (c.weight >= least) kept.push_back(c);
    if (likeliest_until(enough, kept) || least == 0.0F) return;
  }
}

void keep_min_p(std::vector<Candidate>& candidates, float min_p) {
  if (min_p <= 0.0F) return;
  const float least = min_p * std::ranges::max(candidates, {}, &Candidate::weight).weight;
  std::erase_if(candidates, [least](const Candidate& c) { return c.weight < least; });
}

// Log-softmax of the model's own row, at `id` and at the `count` likeliest.
void add_logprobs(std::span<const float> logits, int count, Draw& draw) {
  std::vector<float> probabilities;
  softmax(logits, probabilities);
  const auto largest = static_cast<size_t>(likeliest(logits));
  const double log_sum = static_cast<double>(logits[largest]) - std::log(static_cast<double>(probabilities[largest]));
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - log_sum); };
  draw.logprob = logprob(logits[static_cast<size_t>(draw.id)]);
  if (count == 0) return;
  std::vector<Candidate> top;
  top_k(logits, count, top);
  std::ranges::sort(top, likelier);
  for (const Candidate& c : top) draw.top.push_back({c.id, logprob(c.weight)});
}

Result<void> check_finite(std::span<const float> logits) {
  const auto bad = std::ranges::find_if(logits, [](float x) { return !std::isfinite(x); });
  if (bad == logits.end()) return {};
  return error(Code::numerics, "the logit of token {} is {}: the model's numbers are broken, the answer ends here",
               bad - logits.begin(), *bad);
}

}  // namespace

Result<void> check(const SamplingParams& p, int64_t vocabulary) {
  const struct {
    const char* name;
    float value;
    Range range;
  } all[] = {{"temperature", p.temperature, kTemperatureRange},
             {"top_k", static_cast<float>(p.top_k), kTopKRange},
             {"top_p", p.top_p, kTopPRange},
             {"min_p", p.min_p, kMinPRange},
             {"repetition_penalty", p.repetition_penalty, kRepetitionPenaltyRange},
             {"presence_penalty", p.presence_penalty, kPresencePenaltyRange},
             {"frequency_penalty", p.frequency_penalty, kPresencePenaltyRange}};
  for (const auto& [name, value, range] : all)
    if (!range.contains(value))
      return error(Code::invalid_argument, "{} is {}, must be {}", name, value, range_text(range));
  for (const auto& [id, bias] : p.logit_bias) {
    if (id < 0 || id >= vocabulary)
      return error(Code::invalid_argument, "logit_bias names token {}, but the vocabulary has {}", id, vocabulary);
    if (!kLogitBiasRange.contains(bias))
      return error(Code::invalid_argument, "the logit_bias of token {} is {}, must be {}", id, bias,
                   range_text(kLogitBiasRange));
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
  const auto known = static_cast<int64_t>(logits_.size());  // a guess may know the first tokens only
  for (const auto& [id, count] : seen_) {
    if (id >= known) continue;
    float& logit = logits_[static_cast<size_t>(id)];
    const float repetition = params_.repetition_penalty;
    if (repetition != 1.0F) logit = finite(logit > 0 ? logit / repetition : logit * repetition);
    if (count == 0) continue;
    logit = finite(logit - (params_.presence_penalty + params_.frequency_penalty * static_cast<float>(count)));
  }
  for (const auto& [id, bias] : params_.logit_bias) {
    if (id >= known) continue;
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

// The tokens that may be drawn, with their logits.
void Sampler::gather() {
  if (params_.top_k > 0) return top_k(logits_, params_.top_k, candidates_);
  candidates_.clear();
  for (size_t i = 0; i < logits_.size(); ++i)
    if (logits_[i] != kForbidden) candidates_.push_back({logits_[i], static_cast<int32_t>(i)});
}

Result<int32_t> Sampler::pick(int64_t position) {
  const int32_t best = likeliest(logits_);
  const float largest = logits_[static_cast<size_t>(best)];
  if (largest == kForbidden)
    return error(Code::internal, "the grammar allows no token at position {}: the answer ends here", position);
  if (params_.temperature == 0.0F || params_.top_k == 1) return best;

  gather();
  for (size_t i = 0; i < candidates_.size(); ++i) logits_[i] = (candidates_[i].weight - largest) / params_.temperature;
  softmax(std::span(logits_).first(candidates_.size()), probabilities_);
  for (size_t i = 0; i < candidates_.size(); ++i) candidates_[i].weight = probabilities_[i];
  if (params_.top_p < 1.0F) {
    keep_top_p(candidates_, params_.top_p, kept_);
    candidates_.swap(kept_);
  }
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
