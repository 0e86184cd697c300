#include "targets/openvino/expert_side.h"

#include <algorithm>

#include "base/checked.h"
#include "graph/ops.h"
#include "targets/openvino/read_vector.h"

namespace onw::openvino {
namespace {

// Runs of a layer's rows beside each other; each has a user's number of its own.
constexpr int64_t kMostRuns = 1 << 12;
// Users of the two requests in turn.
constexpr int64_t kTurn[] = {-1, -2};

struct RouterAndExperts {
  const HostStep* router = nullptr;
  const HostStep* experts = nullptr;
};

std::optional<RouterAndExperts> router_and_experts(const std::vector<HostStep>& steps) {
  if (steps.size() != 2 || steps[0].node.op != Op::route || steps[1].node.op != Op::experts) return std::nullopt;
  if (steps[1].operands[1] != steps[0].result || steps[0].crosses) return std::nullopt;
  return RouterAndExperts{&steps[0], &steps[1]};
}

ExpertShape shape_of(const Node& experts, const ExpertStack& stack) {
  ExpertShape shape = stack.shape();
  shape.activation = experts.attributes.text("activation");
  if (shape.activation != "swiglu_clamped") return shape;
  shape.limit = experts.attributes.number("limit", 7);
  shape.alpha = experts.attributes.number("alpha", 1.702);
  return shape;
}

ExpertForms forms_of(const RouterAndExperts& both, const ExpertStack& stack, int64_t most_rows) {
  return expert_forms(shape_of(both.experts->node, stack), both.router->node.type.last(), stack.experts(), most_rows);
}

}  // namespace

Result<std::set<size_t>> segments_before_experts(const Program& program, const CutFunction& cut,
                                                 const WeightSet& weights) {
  std::set<size_t> segments;
  for (size_t s = 0; s < cut.host.size(); ++s) {
    const auto both = router_and_experts(cut.host[s]);
    if (!both) continue;
    const auto stack = ExpertStack::find(program, both->experts->operands, weights);
    RETURN_IF_ERROR(stack);
    if (*stack) segments.insert(s);
  }
  return segments;
}

int64_t rows_together(const std::set<size_t>& segments, int64_t most_step_rows, int64_t largest_graph) {
  return segments.empty() ? largest_graph : round_up(most_step_rows, largest_graph);
}

Result<std::vector<ExpertShape>> expert_shapes(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                               int64_t most_rows) {
  const auto segments = segments_before_experts(program, cut, weights);
  RETURN_IF_ERROR(segments);
  std::vector<ExpertShape> shapes;
  for (const size_t s : *segments) {
    const auto both = router_and_experts(cut.host[s]);
    const auto stack = ExpertStack::find(program, both->experts->operands, weights);
    RETURN_IF_ERROR(stack);
    for (const ExpertShape& shape : forms_of(*both, **stack, most_rows).all())
      if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(shape);
  }
  return shapes;
}

Result<Ir> lower_experts(const ExpertShape& shape, Constants& constants, std::string_view formats) {
  return lower(expert_graph(shape), {}, constants, formats);
}

ExpertSide::ExpertSide(const ExpertSideOptions& options)
    : options_(options),
      requests_(
          options.runtime, [this](const ExpertShape& shape) { return compile(shape); }, options.memory,
          options.most_requests) {}

Result<std::unique_ptr<ExpertSide>> ExpertSide::create(const Program& program, const CutFunction& cut,
                                                       const BufferPlan& buffers, const WeightSet& weights,
                                                       const ExpertSideOptions& options) {
  auto side = std::make_unique<ExpertSide>(options);
  const auto segments = segments_before_experts(program, cut, weights);
  RETURN_IF_ERROR(segments);
  for (const size_t s : *segments) RETURN_IF_ERROR(side->add(program, s, cut.host[s], buffers, weights));
  return side;
}

Result<void> ExpertSide::add(const Program& program, size_t segment, const std::vector<HostStep>& steps,
                             const BufferPlan& buffers, const WeightSet& weights) {
  const auto both = router_and_experts(steps);
  auto stack = ExpertStack::find(program, both->experts->operands, weights);
  RETURN_IF_ERROR(stack);
  const Attributes& a = both->router->node.attributes;
  Layer& layer = layers_[segment];
  layer.logits = buffers.slots.at(both->router->operands[0]);
  layer.x = buffers.slots.at(both->experts->operands[0]);
  layer.y = buffers.slots.at(both->experts->result);
  layer.number = static_cast<int64_t>(layers_.size()) - 1;
  layer.chosen = both->router->node.type.last();
  layer.route = {.kind = *route_kind(a.text("kind")),
                 .renormalise = a.integer("renormalise") != 0,
                 .eps = static_cast<float>(a.number("eps")),
                 .scale = static_cast<float>(a.number("scale", 1))};
  if (both->router->operands.size() > 1) {
    auto bias = read_vector(weights, both->router->operands[1]);
    RETURN_IF_ERROR(bias);
    layer.bias = std::move(*bias);
    layer.route.bias = layer.bias.data();
  }
  layer.stack = std::move(**stack);
  layer.forms = forms_of(*both, layer.stack, options_.max_rows);
  RETURN_IF_ERROR(layer.stack.bring_to(options_.memory));
  for (const ExpertShape& shape : layer.forms.all()) RETURN_IF_ERROR(requests_.compile(shape));
  return {};
}

// Each with small constants of its own: where they lie is part of its text, which must be the same whatever other
// graphs there are.
Result<CompiledModel> ExpertSide::compile(const ExpertShape& shape) {
  auto own = Constants::create({});
  RETURN_IF_ERROR(own);
  Constants& constants = constants_.emplace_back(std::move(*own));
  const auto ir = lower_experts(shape, constants, options_.formats);
  RETURN_IF_ERROR(ir);
  return options_.compile({segment_name(shape), shape.rows, ir->xml}, constants);
}

int64_t ExpertSide::copied_bytes() const {
  int64_t bytes = 0;
  for (const auto& [segment, layer] : layers_) bytes += layer.stack.copied_bytes();
  return bytes;
}

int64_t ExpertSide::weight_bytes() const {
  int64_t bytes = 0;
  for (const auto& [segment, layer] : layers_) bytes += layer.chosen * layer.stack.expert_bytes();
  return bytes;
}

// What is not finite goes on as NaN, and is found in the logits.
void ExpertSide::choose(const Layer& layer, const cpu::RunContext& c) {
  const auto k = static_cast<size_t>(layer.chosen);
  ids_.resize(static_cast<size_t>(c.rows) * k);
  weights_.resize(ids_.size());
  for (int64_t r = 0; r < c.rows; ++r) {
    const size_t at = static_cast<size_t>(r) * k;
    (void)route(layer.route, {layer.logits.f32(c) + r * layer.logits.stride, static_cast<size_t>(layer.logits.width)},
                std::span(ids_).subspan(at, k), std::span(weights_).subspan(at, k));
  }
}

// Pairs of row and weight by expert, rows ascending, those of expert e from first_[e] on; and the experts that there
// are.
void ExpertSide::sort_rows(const Layer& layer, int64_t rows) {
  const auto experts = static_cast<size_t>(layer.stack.experts()), k = static_cast<size_t>(layer.chosen);
  first_.assign(experts + 1, 0);
  for (const int32_t e : ids_) ++first_[static_cast<size_t>(e) + 1];
  active_.clear();
  for (size_t e = 0; e < experts; ++e) {
    if (first_[e + 1] > 0) active_.push_back(static_cast<int64_t>(e));
    first_[e + 1] += first_[e];
  }
  row_of_.resize(ids_.size());
  weight_of_.resize(ids_.size());
  std::vector<int64_t> next(first_.begin(), first_.end() - 1);
  for (size_t i = 0; i < static_cast<size_t>(rows) * k; ++i) {
    const auto at = static_cast<size_t>(next[static_cast<size_t>(ids_[i])]++);
    row_of_[at] = static_cast<int64_t>(i / k);
    weight_of_[at] = weights_[i];
  }
}

Result<void> ExpertSide::run(size_t segment, std::byte* arena, int64_t rows, const CancelToken& cancel) {
  const Layer& layer = layers_.at(segment);
  const cpu::RunContext c{.arena = arena, .rows = rows};
  choose(layer, c);
  sort_rows(layer, rows);
  if (const ExpertShape* form = layer.forms.for_rows(rows); form != nullptr)
    return run_together(layer, *form, c, cancel);
  auto ran = run_by_expert(layer, c, cancel);
  // Whatever happened, nothing runs when this is left: the rows' memory is the next step's.
  for (Turn& turn : turns_) {
    if (turn.bound == nullptr) continue;
    const auto waited = requests_.wait(*turn.bound);
    if (ran && !waited) ran = waited;
    turn.bound = nullptr;
  }
  return ran;
}

Result<void> ExpertSide::run_together(const Layer& layer, const ExpertShape& form, const cpu::RunContext& c,
                                      const CancelToken& cancel) {
  const auto most = static_cast<size_t>(form.slots);
  std::vector<int64_t> slots(most);
  for (size_t begin = 0; begin < active_.size(); begin += most) {
    if (cancel.cancelled()) return error(Code::cancelled, "cancelled");
    const auto experts = std::span(active_).subspan(begin, std::min(most, active_.size() - begin));
    const int64_t user = layer.number * kMostRuns + static_cast<int64_t>(begin / most);
    const auto taken = requests_.take(form, user, layer.stack, experts, std::span(slots).first(experts.size()));
    RETURN_IF_ERROR(taken);
    BoundExperts& b = **taken;
    for (int64_t r = 0; r < c.rows; ++r)
      std::copy_n(layer.x.f32(c) + r * layer.x.stride, form.hidden, b.x + r * form.hidden);
    std::fill_n(b.weight, form.rows * form.slots, 0.0f);
    if (b.chosen != nullptr) std::fill_n(b.chosen, form.rows * form.slots, 0.0f);
    for (size_t i = 0; i < experts.size(); ++i)
      for (int64_t p = first_[static_cast<size_t>(experts[i])]; p < first_[static_cast<size_t>(experts[i]) + 1]; ++p) {
        const int64_t at = row_of_[static_cast<size_t>(p)] * form.slots + slots[i];
        b.weight[at] = weight_of_[static_cast<size_t>(p)];
        if (b.chosen != nullptr) b.chosen[at] = 1;
      }
    RETURN_IF_ERROR(requests_.start(b));
    RETURN_IF_ERROR(requests_.wait(b));
    for (int64_t r = 0; r < c.rows; ++r) {
      const float* from = b.y + r * form.outputs;
      float* to = layer.y.f32(c) + r * layer.y.stride;
      for (int64_t i = 0; i < form.outputs; ++i) to[i] = begin == 0 ? from[i] : to[i] + from[i];
    }
  }
  return {};
}

// Each expert's rows in the largest batches that they fill, and what is left in the smallest that holds it.
Result<void> ExpertSide::run_by_expert(const Layer& layer, const cpu::RunContext& c, const CancelToken& cancel) {
  for (int64_t r = 0; r < c.rows; ++r) std::fill_n(layer.y.f32(c) + r * layer.y.stride, layer.y.width, 0.0f);
  std::map<ExpertShape, std::vector<Part>> parts;
  for (const int64_t e : active_) {
    const int64_t end = first_[static_cast<size_t>(e) + 1];
    for (int64_t at = first_[static_cast<size_t>(e)]; at < end;) {
      const ExpertShape& form = layer.forms.batch_for(end - at);
      const int64_t rows = std::min(form.rows, end - at);
      parts[form].push_back({e, at, rows});
      at += rows;
    }
  }
  for (const auto& [form, of_form] : parts)
    for (size_t begin = 0; begin < of_form.size(); begin += static_cast<size_t>(form.slots)) {
      const size_t count = std::min(static_cast<size_t>(form.slots), of_form.size() - begin);
      RETURN_IF_ERROR(run_batches(layer, form, std::span(of_form).subspan(begin, count), c, cancel));
    }
  for (Turn& turn : turns_) RETURN_IF_ERROR(finish(layer, turn, c));
  return {};
}

Result<void> ExpertSide::run_batches(const Layer& layer, const ExpertShape& form, std::span<const Part> parts,
                                     const cpu::RunContext& c, const CancelToken& cancel) {
  if (cancel.cancelled()) return error(Code::cancelled, "cancelled");
  const size_t number = next_turn_;
  next_turn_ = 1 - next_turn_;
  Turn& turn = turns_[number];
  RETURN_IF_ERROR(finish(layer, turn, c));
  std::vector<int64_t> experts;
  for (const Part& part : parts) experts.push_back(part.expert);
  turn.slots.resize(parts.size());
  turn.parts.assign(parts.begin(), parts.end());
  const auto taken = requests_.take(form, kTurn[number], layer.stack, experts, turn.slots);
  RETURN_IF_ERROR(taken);
  BoundExperts& b = **taken;
  for (size_t i = 0; i < parts.size(); ++i) {
    float* to = b.x + turn.slots[i] * form.rows * form.hidden;
    for (int64_t p = 0; p < parts[i].rows; ++p, to += form.hidden)
      std::copy_n(layer.x.f32(c) + row_of_[static_cast<size_t>(parts[i].first + p)] * layer.x.stride, form.hidden, to);
  }
  turn.bound = &b;
  return requests_.start(b);
}

// Waits for the batch, and adds its rows to what they belong to.
Result<void> ExpertSide::finish(const Layer& layer, Turn& turn, const cpu::RunContext& c) {
  if (turn.bound == nullptr) return {};
  BoundExperts& b = *std::exchange(turn.bound, nullptr);
  RETURN_IF_ERROR(requests_.wait(b));
  for (size_t i = 0; i < turn.parts.size(); ++i) {
    const float* from = b.y + turn.slots[i] * b.shape.rows * b.shape.outputs;
    for (int64_t p = 0; p < turn.parts[i].rows; ++p, from += b.shape.outputs) {
      const auto pair = static_cast<size_t>(turn.parts[i].first + p);
      float* to = layer.y.f32(c) + row_of_[pair] * layer.y.stride;
      for (int64_t o = 0; o < b.shape.outputs; ++o) to[o] += weight_of_[pair] * from[o];
    }
  }
  return {};
}

}  // namespace onw::openvino
