#include "targets/cpu/plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "graph/ops.h"
#include "quant/unpack.h"
#include "targets/cpu/hadamard_step.h"
#include "targets/cpu/recurrent_steps.h"
#include "targets/cpu/steps.h"
#include "targets/cpu/tiled_weights.h"
#include "targets/op_observer.h"

namespace onw::cpu {

// Node by node from a fused graph to steps.
class PlanCompiler {
 public:
  PlanCompiler(const Program& program, const Function& function, const WeightSet& weights, const PlanOptions& options)
      : program_(program), weights_(weights), options_(options) {
    plan_.function_ = function;
    plan_.memory_ = plan_memory(function, rules());
  }

  Result<Plan> run() {
    for (size_t i = 0; i < f().nodes.size(); ++i) {
      const Node& n = f().nodes[i];
      const Value v{static_cast<int32_t>(i)};
      if (n.op == Op::input) plan_.inputs_.emplace_back(n.label, slot(v));
      if (n.op == Op::input || n.op == Op::weight || is_view(v)) continue;
      auto step = compile(n, v);
      if (!step) return failure(std::move(step), n.label);
      plan_.steps_.push_back(std::move(*step));
      plan_.ops_.push_back(n.op);
      plan_.results_.push_back(n.type.dtype == DType::none ? Slot{} : slot(v));
    }
    for (const Output& o : f().outputs) plan_.outputs_.emplace_back(o.name, slot(o.value));
    plan_.memory_.arena_bytes += scratch_bytes_;
    return std::move(plan_);
  }

 private:
  const Function& f() const { return plan_.function_; }

  MemoryRules rules() const {
    return {.bytes =
                [rows = options_.max_rows](const Type& t) {
                  if (t.dtype == DType::q8)
                    return static_cast<int64_t>(quantized_rows_bytes(rows, t.last(), static_cast<int32_t>(t.group)));
                  return rows * t.row_elements() * (t.dtype == DType::route ? 8 : 4);  // of a route weights and ids
                },
            .in_place =
                [](const Node& n) {
                  constexpr Op kOps[] = {Op::rope, Op::scale,      Op::soft_cap, Op::activate,
                                         Op::add,  Op::linear_add, Op::rms_norm, Op::gated};
                  return std::ranges::find(kOps, n.op) != std::end(kOps);
                },
            .external = [](const Node&) { return false; }};
  }

  bool is_view(Value v) const {
    const Node& n = f().node(v);
    return n.op == Op::reshape || (n.op == Op::slice && plan_.memory_.places[static_cast<size_t>(v.id)].owner != v);
  }

  Slot slot(Value v) const {
    const Place& p = plan_.memory_.places[static_cast<size_t>(v.id)];
    const Type &own = f().type(v), &owner = f().type(p.owner);
    if (own.dtype == DType::q8) return {p.offset, own.last(), own.last(), static_cast<int32_t>(own.group)};
    if (own.dtype == DType::route) return {p.offset, 2 * own.last(), 2 * own.last(), 0};
    return {p.offset + p.column * 4, owner.row_elements(), own.row_elements(), 0};
  }

  Slot in(const Node& n, size_t i) const { return slot(n.inputs[i]); }
  bool is_weight(const Node& n, size_t i) const {
    return i < n.inputs.size() && f().node(n.inputs[i]).op == Op::weight;
  }

  Result<WeightView> matrix(const Node& n, size_t i) const {
    auto w = find_weight(program_, weights_, f().node(n.inputs[i]).label);
    RETURN_IF_ERROR(w);
    if (w->layout != Layout::tiles)
      return error(Code::unsupported, "weight '{}' is in rows, the CPU runs tiles: relay it first",
                   f().node(n.inputs[i]).label);
    return w;
  }

  // The FP32 vector behind operand i; empty where there is none. It lies in the file where that holds FP32, else in the
  // plan.
  Result<std::span<const float>> vector(const Node& n, size_t i) {
    if (i >= n.inputs.size()) return std::span<const float>();
    const WeightDecl* decl = program_.weight(f().node(n.inputs[i]).label);
    CHECK(decl != nullptr);
    const std::vector<std::string> parts = decl->parts.empty() ? std::vector{decl->name} : decl->parts;
    if (parts.size() == 1) {
      const auto w = weights_.find(parts[0]);
      RETURN_IF_ERROR(w);
      if (w->format == WeightFormat::f32 && reinterpret_cast<uintptr_t>(w->codes.data()) % alignof(float) == 0)
        return std::span(reinterpret_cast<const float*>(w->codes.data()), static_cast<size_t>(w->outputs));
    }
    auto values = std::make_shared<std::vector<float>>();
    for (const std::string& part : parts) {
      const auto w = weights_.find(part);
      RETURN_IF_ERROR(w);
      for (int64_t o = 0; o < w->outputs; ++o) {
        float x = 0;
        dequantise_row(*w, o, {&x, 1});
        values->push_back(x);
      }
    }
    plan_.vectors_.push_back(values);
    return std::span<const float>(*values);
  }

  Result<StepPtr> linear(const Node& n, Value v, size_t x, bool residual) {
    const auto w = matrix(n, x + 1);
    RETURN_IF_ERROR(w);
    const auto bias = vector(n, x + 2);
    RETURN_IF_ERROR(bias);
    LinearStep s{.x = in(n, x), .y = slot(v), .weight = *w, .bias = *bias};
    if (residual) s.residual = in(n, 0);
    return make_linear(n.label, s);
  }

  Result<StepPtr> norm(const Node& n, Value v) {
    const auto weight = vector(n, 1);
    RETURN_IF_ERROR(weight);
    const auto bias = vector(n, 2);
    RETURN_IF_ERROR(bias);
    return make_norm(n.label, {.op = n.op,
                               .x = in(n, 0),
                               .y = slot(v),
                               .last = n.type.last(),
                               .weight = *weight,
                               .bias = *bias,
                               .eps = static_cast<float>(n.attributes.number("eps"))});
  }

  static scalar::Gate gate_of(const Node& n) {
    scalar::Gate kind;
    kind.activation = *scalar::activation(n.attributes.text("activation"));
    kind.limit = static_cast<float>(n.attributes.number("limit", kind.limit));
    kind.alpha = static_cast<float>(n.attributes.number("alpha", kind.alpha));
    return kind;
  }

  Result<StepPtr> linear_gated(const Node& n, Value v) {
    const auto w = matrix(n, 1);
    RETURN_IF_ERROR(w);
    const auto bias = vector(n, 2);
    RETURN_IF_ERROR(bias);
    const LinearGatedStep s{.x = in(n, 0), .y = slot(v), .weight = *w, .bias = *bias, .kind = gate_of(n)};
    return make_linear_gated(n.label, s, options_, gated_work_);
  }

  Result<StepPtr> element(const Node& n, Value v) {
    ElementStep s{.op = n.op, .a = in(n, 0), .y = slot(v)};
    if (n.inputs.size() > 1) {
      if (is_weight(n, 0)) return error(Code::unsupported, "a weight as the first operand of '{}'", name(n.op));
      if (is_weight(n, 1)) {
        const auto shared = vector(n, 1);
        RETURN_IF_ERROR(shared);
        const auto width = static_cast<int64_t>(shared->size());
        const bool by_one = n.op == Op::multiply && width == 1;
        if (!by_one && width != n.type.row_elements())
          return error(Code::unsupported, "'{}' of {} and {}", name(n.op), to_string(n.type),
                       to_string(f().type(n.inputs[1])));
        s.shared_b = *shared;
      } else {
        const Type& a = f().type(n.inputs[0]);
        const bool by_row = n.op == Op::multiply && a.shape.size() == n.type.shape.size() && a.last() == 1;
        if (f().type(n.inputs[1]) != n.type || (a != n.type && !by_row))
          return error(Code::unsupported, "'{}' of {} and {}", name(n.op), to_string(a),
                       to_string(f().type(n.inputs[1])));
        s.b = in(n, 1);
      }
    }
    s.number = static_cast<float>(n.attributes.number(n.op == Op::scale ? "by" : "cap"));
    if (n.op == Op::activate) s.activation = *scalar::activation(n.attributes.text("activation"));
    return make_element(n.label, s);
  }

  Result<StepPtr> concat(const Node& n, Value v) {
    if (n.type.shape.size() != 2 || n.type.dtype != DType::f32)
      return error(Code::unsupported, "'concat' to {}", to_string(n.type));
    std::vector<Slot> parts;
    for (size_t i = 0; i < n.inputs.size(); ++i) parts.push_back(in(n, i));
    return make_concat(n.label, std::move(parts), slot(v));
  }

  Result<StepPtr> kv_write(const Node& n) {
    const int state = program_.state(n.attributes.text("state"));
    const StateDecl& s = program_.states[static_cast<size_t>(state)];
    return make_kv_write(n.label, {in(n, 0), in(n, 1), program_.place(state), s.heads, s.head_dim});
  }

  Result<StepPtr> attention(const Node& n, Value v) {
    const int state = program_.state(n.attributes.text("state"));
    const StateDecl& s = program_.states[static_cast<size_t>(state)];
    if (n.attributes.integer("bidirectional") != 0 || s.value_dim != s.head_dim)
      return error(Code::unsupported, "bidirectional attention, or values of another size than keys");
    const auto sinks = vector(n, 1);
    RETURN_IF_ERROR(sinks);
    const std::string_view kv = n.attributes.text("kv", "f32");
    const AttentionForm form{.kv = kv == "int8"  ? KvFormat::int8
                                   : kv == "f16" ? KvFormat::f16
                                                 : KvFormat::f32,
                             .head_dim = static_cast<int>(s.head_dim),
                             .scale = static_cast<float>(n.attributes.number("scale")),
                             .soft_cap = static_cast<float>(n.attributes.number("soft_cap"))};
    const AttentionStep step{.q = in(n, 0),
                             .y = slot(v),
                             .state = program_.place(state),
                             .heads = n.type.shape[1],
                             .kv_heads = s.heads,
                             .window = n.attributes.integer("window"),
                             .form = form,
                             .sinks = *sinks};
    return make_attention(n.label, step, options_, attention_work_);
  }

  Result<StepPtr> conv_update(const Node& n, Value v) {
    const auto w = weights_.find(f().node(n.inputs[1]).label);
    RETURN_IF_ERROR(w);
    const auto bias = vector(n, 2);
    RETURN_IF_ERROR(bias);
    ConvStep s{.x = in(n, 0), .y = slot(v), .state = state_of(n), .kernel = w->inputs, .bias = *bias};
    std::vector<float> taps(static_cast<size_t>(w->inputs));
    s.weight.resize(static_cast<size_t>(w->inputs * w->outputs));
    for (int64_t c = 0; c < w->outputs; ++c) {
      dequantise_row(*w, c, taps);
      for (int64_t j = 0; j < w->inputs; ++j)
        s.weight[static_cast<size_t>(j * w->outputs + c)] = taps[static_cast<size_t>(j)];
    }
    return make_conv_update(n.label, std::move(s));
  }

  StepPtr gated_delta(const Node& n, Value v) const {
    return make_gated_delta(n.label, {.q = in(n, 0),
                                      .k = in(n, 1),
                                      .v = in(n, 2),
                                      .g = in(n, 3),
                                      .beta = in(n, 4),
                                      .y = slot(v),
                                      .state = state_of(n),
                                      .tiled = n.attributes.text("heads") == "tiled"});
  }

  int state_of(const Node& n) const { return program_.place(program_.state(n.attributes.text("state"))); }

  Result<StepPtr> route(const Node& n, Value v) {
    const auto bias = vector(n, 1);
    RETURN_IF_ERROR(bias);
    const RouteForm form{.kind = *route_kind(n.attributes.text("kind")),
                         .renormalise = n.attributes.integer("renormalise") != 0,
                         .eps = static_cast<float>(n.attributes.number("eps")),
                         .scale = static_cast<float>(n.attributes.number("scale", 1)),
                         .bias = bias->empty() ? nullptr : bias->data()};
    return make_route(n.label, {in(n, 0), slot(v), n.type.last(), form});
  }

  Result<StepPtr> experts(const Node& n, Value v) {
    ExpertsStep s{.x = in(n, 0), .route = in(n, 1), .y = slot(v), .kind = gate_of(n)};
    WeightView* const stacks[] = {&s.gate, &s.up, &s.down, &s.gate_bias, &s.up_bias, &s.down_bias};
    for (size_t i = 2; i < n.inputs.size(); ++i) {
      const auto stack = weights_.find(f().node(n.inputs[i]).label);
      RETURN_IF_ERROR(stack);
      *stacks[i - 2] = *stack;
    }
    const int64_t chosen_from = f().type(f().node(n.inputs[1]).inputs[0]).last();
    if (s.gate.experts != chosen_from || s.up.experts != chosen_from || s.down.experts != chosen_from)
      return error(Code::invalid_argument, "the router chooses from {} experts, the weights have {}", chosen_from,
                   s.gate.experts);
    s.group = static_cast<int32_t>(n.attributes.integer("group"));
    s.scratch = plan_.memory_.arena_bytes;
    s.most_rows = options_.max_rows;
    s.threads = options_.threads;
    scratch_bytes_ = std::max(scratch_bytes_, scratch_bytes(s));
    return make_experts(n.label, s);
  }

  Result<StepPtr> compile(const Node& n, Value v) {
    switch (n.op) {
      case Op::linear:
        return linear(n, v, 0, false);
      case Op::linear_add:
        return linear(n, v, 1, true);
      case Op::rms_norm:
      case Op::rms_norm_quantize:
      case Op::layer_norm:
      case Op::l2_norm:
        return norm(n, v);
      case Op::hadamard: {
        const auto signs = vector(n, 1);
        RETURN_IF_ERROR(signs);
        return make_hadamard(
            n.label, {in(n, 0), slot(v), *signs, n.attributes.integer("block"), n.attributes.integer("inverse") != 0});
      }
      case Op::rope: {
        const Type& x = f().type(n.inputs[0]);
        return make_rope(n.label, {in(n, 0), slot(v), in(n, 1), in(n, 2), x.shape[1], x.shape[2]});
      }
      case Op::gated:
      case Op::gated_quantize:
        return make_gated(n.label, {.gate = in(n, 0), .up = in(n, 1), .y = slot(v), .kind = gate_of(n)});
      case Op::linear_gated_quantize:
        return linear_gated(n, v);
      case Op::quantize:
        return make_quantise(n.label, in(n, 0), slot(v));
      case Op::add:
      case Op::multiply:
      case Op::scale:
      case Op::soft_cap:
      case Op::activate:
        return element(n, v);
      case Op::concat:
        return concat(n, v);
      case Op::kv_write:
        return kv_write(n);
      case Op::attention:
        return attention(n, v);
      case Op::conv_update:
        return conv_update(n, v);
      case Op::gated_delta:
        return gated_delta(n, v);
      case Op::route:
        return route(n, v);
      case Op::experts:
        return experts(n, v);
      default:
        return error(Code::unsupported, "the CPU target has no '{}' yet", name(n.op));
    }
  }

  const Program& program_;
  const WeightSet& weights_;
  const PlanOptions& options_;
  Plan plan_;
  int64_t scratch_bytes_ = 0;  // behind the values: what steps of experts share
  std::shared_ptr<AttentionWork> attention_work_;
  std::shared_ptr<GatedWork> gated_work_;
};

Result<Plan> Plan::compile(const Program& program, const Function& function, const WeightSet& weights,
                           const PlanOptions& options) {
  return PlanCompiler(program, function, weights, options).run();
}

bool Plan::run(const RunContext& context, const CancelToken& cancel) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (cancel.cancelled()) return false;
    if (context.observer == nullptr) {
      steps_[i]->run(context);
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    steps_[i]->run(context);
    show(i, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), context);
  }
  return true;
}

void Plan::show(size_t step, double seconds, const RunContext& c) const {
  const Slot& result = results_[step];
  SeenOp seen{.label = steps_[step]->label(),
              .kind = name(ops_[step]),
              .seconds = seconds,
              .weight_bytes = steps_[step]->weight_bytes(),
              .weight_ops = 2 * steps_[step]->weight_values() * c.rows};
  if (result.offset >= 0 && result.group == 0) {
    seen.values = result.f32(c);
    seen.rows = c.rows, seen.width = result.width, seen.stride = result.stride;
  }
  c.observer->seen(seen);
}

namespace {

const Slot& named(const std::vector<std::pair<std::string, Slot>>& slots, std::string_view name) {
  const auto found = std::ranges::find(slots, name, &std::pair<std::string, Slot>::first);
  CHECK(found != slots.end());
  return found->second;
}

bool finite(const Slot& s, const RunContext& c) {
  if (s.offset < 0) return true;
  if (s.group > 0) {
    const QuantizedRows q = s.q8(c);
    for (int64_t g = 0; g < q.inputs / q.group; ++g)
      for (int64_t r = 0; r < q.rows; ++r)
        if (!std::isfinite(q.scales[g * q.row_stride + r])) return false;
    return true;
  }
  for (int64_t r = 0; r < c.rows; ++r)
    for (int64_t i = 0; i < s.width; ++i)
      if (!std::isfinite(s.f32(c)[r * s.stride + i])) return false;
  return true;
}

}  // namespace

const Slot& Plan::input(std::string_view name) const { return named(inputs_, name); }
const Slot& Plan::output(std::string_view name) const { return named(outputs_, name); }

bool Plan::has_input(std::string_view name) const {
  return std::ranges::find(inputs_, name, &std::pair<std::string, Slot>::first) != inputs_.end();
}

int64_t Plan::weight_bytes() const {
  int64_t n = 0;
  for (const auto& step : steps_) n += step->weight_bytes();
  return n;
}

std::string Plan::print() const {
  std::string text =
      fmt::format("{}: {} steps, {} bytes of weights a row\n", function_.name, steps_.size(), weight_bytes());
  for (size_t i = 0; i < steps_.size(); ++i)
    text += fmt::format("  {:>4}  {:<40} {:>10}\n", i, steps_[i]->label(),
                        steps_[i]->weight_bytes() > 0 ? std::to_string(steps_[i]->weight_bytes()) : "");
  return text + onw::print(function_, memory_);
}

std::string Plan::first_not_finite(const RunContext& c) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    steps_[i]->run(c);
    if (!finite(results_[i], c)) return steps_[i]->label();
  }
  return "";
}

}  // namespace onw::cpu
