#include "cli/eval_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/result.h"

namespace onw::cli {

double log_sum_exp(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - most);
  return most + std::log(sum);
}

int32_t top_token(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void EvalMetrics::add_prediction(std::span<const float> logits, int32_t next) {
  CHECK(next >= 0 && static_cast<size_t>(next) < logits.size());
  nll_ += log_sum_exp(logits) - logits[static_cast<size_t>(next)];
  ++predictions_;
}

void EvalMetrics::add_comparison(std::span<const float> logits, std::span<const float> reference) {
  CHECK(logits.size() == reference.size());
  const double ours = log_sum_exp(logits);
  const double theirs = log_sum_exp(reference);
  double kl = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double log_p = reference[i] - theirs;
    kl += std::exp(log_p) * (log_p - (logits[i] - ours));
  }
  kl_.push_back(std::max(kl, 0.0));
  agreements_ += top_token(logits) == top_token(reference) ? 1 : 0;
}

EvalSummary EvalMetrics::summary() const {
  EvalSummary s;
  s.predictions = predictions_;
  if (predictions_ > 0) {
    s.mean_nll = nll_ / static_cast<double>(predictions_);
    s.perplexity = std::exp(s.mean_nll);
  }
  if (kl_.empty()) return s;
  auto sorted = kl_;
  std::sort(sorted.begin(), sorted.end());
  const auto n = static_cast<double>(sorted.size());
  s.comparisons = static_cast<int64_t>(sorted.size());
  s.mean_kl = std::accumulate(sorted.begin(), sorted.end(), 0.0) / n;
  s.kl_999 = sorted[static_cast<size_t>(std::ceil(0.999 * n)) - 1];
  s.max_kl = sorted.back();
  s.top1_agreement = static_cast<double>(agreements_) / n;
  return s;
}

}  // namespace onw::cli
