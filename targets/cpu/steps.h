// The steps of a plan, one class a kernel. Each splits its work over the pool; no result depends on the split.
#pragma once

#include <memory>

#include "kernels/route/route.h"
#include "targets/cpu/plan.h"

namespace onw::cpu {

using StepPtr = std::unique_ptr<PlanStep>;

struct LinearStep {
  Slot x, y;
  WeightView weight;            // tiles
  std::span<const float> bias;  // empty: none
  Slot residual;                // offset -1: none
};
StepPtr make_linear(std::string label, const LinearStep& step);

struct NormStep {
  Op op;  // rms_norm, layer_norm, l2_norm or rms_norm_quantize
  Slot x, y;
  int64_t last = 0;  // elements of one norm; a row holds width / last of them
  std::span<const float> weight, bias;
  float eps = 0;
};
StepPtr make_norm(std::string label, const NormStep& step);

struct RopeStep {
  Slot x, y, cos, sin;
  int64_t heads = 0, head_dim = 0;
};
StepPtr make_rope(std::string label, const RopeStep& step);

struct GatedStep {
  Slot gate, up, y;  // y INT8 where its group says so
  scalar::Gate kind;
};
StepPtr make_gated(std::string label, const GatedStep& step);

// y = quantise(gated(gate, up)), gate and up the halves of the weight's outputs.
struct LinearGatedStep {
  Slot x, y;                    // INT8
  WeightView weight;            // tiles, [2 * width of y, in]
  std::span<const float> bias;  // empty: none
  scalar::Gate kind;
};
struct GatedWork;  // the threads' buffers, which these steps of a plan share; made by the first
StepPtr make_linear_gated(std::string label, const LinearGatedStep& step, const PlanOptions& options,
                          std::shared_ptr<GatedWork>& work);

StepPtr make_quantise(std::string label, const Slot& x, const Slot& y);

// y[i] = f(a[i], b[i]) or f(a[i]); b may be a vector that every row shares.
struct ElementStep {
  Op op;         // add, multiply, scale, soft_cap, activate
  Slot a, b, y;  // a of multiply may be one number a row
  std::span<const float> shared_b;
  float number = 0;
  scalar::Activation activation = scalar::Activation::silu;
};
StepPtr make_element(std::string label, const ElementStep& step);

// FP32 rows one after the other along their last axis.
StepPtr make_concat(std::string label, std::vector<Slot> parts, const Slot& y);

struct KvWriteStep {
  Slot k, v;
  int state = 0;
  int64_t heads = 0, head_dim = 0;
};
StepPtr make_kv_write(std::string label, const KvWriteStep& step);

struct AttentionStep {
  Slot q, y;
  int state = 0;
  int64_t heads = 0, kv_heads = 0;
  int64_t window = 0;
  AttentionForm form;
  std::span<const float> sinks;
};
struct AttentionWork;  // buffers that the attention steps of a plan share; made by the first
StepPtr make_attention(std::string label, const AttentionStep& step, const PlanOptions& options,
                       std::shared_ptr<AttentionWork>& work);

// Weights of the chosen experts, then their ids, as FP32: [2k] a row.
struct RouteStep {
  Slot logits, y;
  int64_t k = 0;
  RouteForm form;
};
StepPtr make_route(std::string label, const RouteStep& step);

struct ExpertsStep {
  Slot x, route, y;
  WeightView gate, up, down;                 // stacks, in either layout
  WeightView gate_bias, up_bias, down_bias;  // stacks of F32; no outputs: none
  scalar::Gate kind;
  int32_t group = 0;    // of what stands before down; 0: FP32
  int64_t scratch = 0;  // where the plan's scratch begins in the arena, and how many bytes this step needs of it
  int64_t most_rows = 0, threads = 1;
};
int64_t scratch_bytes(const ExpertsStep& step);
StepPtr make_experts(std::string label, const ExpertsStep& step);

}  // namespace onw::cpu
