// How well logits predict a text, and how far they are from other logits of the same text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cli/layer_errors.h"

namespace onw::cli {

struct EvalSummary {
  int64_t predictions = 0;
  double mean_nll = 0;  // of the next token, in nats
  double perplexity = 0;
  int64_t comparisons = 0;
  double mean_kl = 0;  // KL(reference || ours), in nats
  double kl_999 = 0;   // 99.9 % of the rows are below
  double max_kl = 0;
  double top1_agreement = 0;  // share of rows whose most likely token is the same
  std::vector<LayerError> worst_layers;
};

class EvalMetrics {
 public:
  // `next` is the token that follows in the text.
  void add_prediction(std::span<const float> logits, int32_t next);
  void add_comparison(std::span<const float> logits, std::span<const float> reference);
  EvalSummary summary() const;

 private:
  int64_t predictions_ = 0;
  double nll_ = 0;
  std::vector<double> kl_;
  int64_t agreements_ = 0;
};

// log(sum(exp(logits))), in double.
double log_sum_exp(std::span<const float> logits);

// The most likely token; ties go to the lowest id.
int32_t top_token(std::span<const float> logits);

}  // namespace onw::cli
