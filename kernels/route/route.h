// Which experts a row takes, and with what weights: one function for the reference and the CPU.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace onw {

// How logits become scores.
enum class RouteKind : uint8_t {
  softmax,         // over all experts
  softmax_chosen,  // over the chosen ones
  sigmoid,         // of each by itself
};
std::optional<RouteKind> route_kind(std::string_view name);

struct RouteForm {
  RouteKind kind = RouteKind::softmax;
  bool renormalise = false;     // weights are divided by (their sum + eps)
  float eps = 0;                // of renormalise
  float scale = 1;              // then multiplied by it
  const float* bias = nullptr;  // [experts]: added to the scores to choose by, not to the weights; null: none
};

// The experts of one row: `ids` ascending, `weights` theirs, both of size k (1 <= k <= logits.size() <= kMostExperts).
// Chosen are the k largest logits, or scores + bias where there is a bias; of equal ones the lower id. Sums and softmax
// as kernels/scalar.h has them, over ids ascending. False where a logit, or a sum with its bias, is not finite: then
// the ids are the first k and the weights NaN, so that nobody takes the result for an answer.
bool route(const RouteForm& form, std::span<const float> logits, std::span<int32_t> ids, std::span<float> weights);

}  // namespace onw
