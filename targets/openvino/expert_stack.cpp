#include "targets/openvino/expert_stack.h"

#include <array>
#include <cstring>

#include "base/checked.h"

namespace onw::openvino {
namespace {

// Where a page begins, so does an expert: drivers take memory by pages.
constexpr int64_t kPage = 4096;

bool is_taken(const WeightView& w) {
  return w.format == WeightFormat::q4c && w.layout == Layout::rows && w.inputs % 2 == 0;
}

std::byte* append(std::byte* to, std::span<const std::byte> bytes) {
  std::memcpy(to, bytes.data(), bytes.size());
  return to + bytes.size();
}

}  // namespace

Result<std::optional<ExpertStack>> ExpertStack::find(const Program& program, std::span<const std::string> operands,
                                                     const WeightSet& weights) {
  ExpertStack s;
  const std::array<WeightView*, 6> views = {&s.gate_, &s.up_, &s.down_, &s.gate_bias_, &s.up_bias_, &s.down_bias_};
  const auto names = operands.subspan(2);
  CHECK(names.size() == 3 || names.size() == 6);
  for (size_t i = 0; i < names.size(); ++i) {
    CHECK(program.weight(names[i]) != nullptr);
    auto view = weights.find(names[i]);
    RETURN_IF_ERROR(view);
    *views[i] = *view;
  }
  const bool side_by_side = s.up_.codes.data() == s.gate_.codes.data() + s.gate_.codes.size() &&
                            s.up_.expert_stride == s.gate_.expert_stride && s.up_.outputs == s.gate_.outputs;
  if (!is_taken(s.gate_) || !is_taken(s.up_) || !is_taken(s.down_) || !side_by_side) return std::nullopt;
  return s;
}

ExpertShape ExpertStack::shape() const {
  return {.hidden = gate_.inputs, .inner = gate_.outputs, .outputs = down_.outputs, .biases = gate_bias_.outputs > 0};
}

Result<void> ExpertStack::bring_to(const HostMemory& memory) {
  if (!memory.is_of_device()) return {};
  const int64_t stride = round_up(gate_up_bytes(), kPage) + round_up(down_bytes(), kPage);
  auto copy = memory.allocate(experts() * stride);
  RETURN_IF_ERROR(copy);
  for (int64_t e = 0; e < experts(); ++e) {
    std::byte* to = copy->get() + e * stride;
    append(append(to, gate_.expert(e).codes), up_.expert(e).codes);
    append(to + round_up(gate_up_bytes(), kPage), down_.expert(e).codes);
  }
  copy_ = std::move(*copy);
  return {};
}

const std::byte* ExpertStack::gate_up(int64_t e) const {
  if (copy_ == nullptr) return gate_.expert(e).codes.data();
  return copy_.get() + e * (round_up(gate_up_bytes(), kPage) + round_up(down_bytes(), kPage));
}

const std::byte* ExpertStack::down(int64_t e) const {
  return copy_ == nullptr ? down_.expert(e).codes.data() : gate_up(e) + round_up(gate_up_bytes(), kPage);
}

void ExpertStack::read_scales(int64_t e, std::byte* to) const {
  for (const WeightView* w : {&gate_, &up_, &down_}) to = append(to, w->expert(e).scales);
}

void ExpertStack::read_biases(int64_t e, float* to) const {
  auto* at = reinterpret_cast<std::byte*>(to);
  for (const WeightView* w : {&gate_bias_, &up_bias_, &down_bias_}) at = append(at, w->expert(e).codes);
}

}  // namespace onw::openvino
