#include "targets/openvino/graph.h"

#include <algorithm>

namespace onw::openvino {

Result<Graph> Graph::compile(std::shared_ptr<const Runtime> runtime, const Ir& ir, const Tensor& constants,
                             int64_t fixed_rows, const std::string& device, const Properties& properties) {
  auto compiled = runtime->compile(ir.xml, constants, device, properties);
  RETURN_IF_ERROR(compiled);
  return of(std::move(*compiled), std::move(runtime), ir, fixed_rows);
}

Result<Graph> Graph::of(CompiledModel compiled, std::shared_ptr<const Runtime> runtime, const Ir& ir,
                        int64_t fixed_rows) {
  Graph g;
  g.runtime_ = std::move(runtime);
  g.compiled_ = std::move(compiled);
  g.ports_ = ir.inputs;
  g.ports_.insert(g.ports_.end(), ir.outputs.begin(), ir.outputs.end());
  g.fixed_rows_ = fixed_rows;
  return g;
}

void Graph::make_requests_as_needed() {
  keeps_request_ = false;
  request_.reset();
  bound_rows_ = 0;
  for (StatePort& s : states_) s.bound = nullptr;
}

Result<void> Graph::bind(int64_t rows, const BufferPlan& buffers, std::byte* arena, int64_t first) {
  if (!request_) {
    auto request = compiled_.request();
    RETURN_IF_ERROR(request);
    request_ = std::move(*request);
  }
  for (const IrPort& port : ports_) {
    const auto slot = buffers.slots.find(port.name);
    if (slot == buffers.slots.end()) {
      (void)state_port(port);
      continue;
    }
    Shape shape = port.type.shape;
    shape[0] = rows;
    float* const at = reinterpret_cast<float*>(arena + slot->second.offset) + first * slot->second.stride;
    const auto tensor = runtime_->tensor(DType::f32, shape, at);
    RETURN_IF_ERROR(tensor);
    RETURN_IF_ERROR(request_->set(port.name, *tensor));
  }
  bound_rows_ = rows;
  bound_first_ = first;
  return {};
}

bool Graph::has_port(std::string_view name) const {
  return std::ranges::find(ports_, name, [](const IrPort& p) { return std::string_view(p.name); }) != ports_.end();
}

// A graph that makes its requests as needed may not have been bound yet.
void Graph::place_states(const std::map<std::string, std::byte*, std::less<>>& places) {
  for (const IrPort& port : ports_) {
    const auto place = places.find(port.name);
    if (place != places.end()) state_port(port).at = place->second;
  }
}

Graph::StatePort& Graph::state_port(const IrPort& port) {
  const auto known = std::ranges::find(states_, port.name, [](const StatePort& s) { return s.port.name; });
  return known != states_.end() ? *known : states_.emplace_back(StatePort{.port = port});
}

Result<void> Graph::bind_states() {
  for (StatePort& s : states_) {
    CHECK(s.at != nullptr);  // an unbound port would be the library's own memory: wrong, and not noticed
    if (s.at == s.bound) continue;
    const auto tensor = runtime_->tensor(DType::f32, s.port.type.shape, s.at);
    RETURN_IF_ERROR(tensor);
    RETURN_IF_ERROR(request_->set(s.port.name, *tensor));
    s.bound = s.at;
  }
  return {};
}

Result<void> Graph::run(int64_t rows, const BufferPlan& buffers, std::byte* arena, int64_t first) {
  const int64_t all = fixed_rows_ == kRows ? rows : fixed_rows_;
  CHECK(rows <= all);
  if (bound_rows_ != all || bound_first_ != first) RETURN_IF_ERROR(bind(all, buffers, arena, first));
  RETURN_IF_ERROR(bind_states());
  auto ran = request_->run();
  if (!keeps_request_) make_requests_as_needed();
  return ran;
}

}  // namespace onw::openvino
