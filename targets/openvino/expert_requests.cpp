#include "targets/openvino/expert_requests.h"

#include <algorithm>
#include <chrono>

#include "base/checked.h"

namespace onw::openvino {

ExpertRequests::ExpertRequests(std::shared_ptr<const Runtime> runtime, CompileExperts compile, HostMemory memory,
                               int most)
    : runtime_(std::move(runtime)), compile_(std::move(compile)), memory_(std::move(memory)), most_(most) {
  CHECK(most >= 2);
}

Result<void> ExpertRequests::compile(const ExpertShape& shape) {
  if (compiled_.contains(shape)) return {};
  auto compiled = compile_(shape);
  RETURN_IF_ERROR(compiled);
  ++counts_.compiled;
  compiled_.emplace(shape, std::move(*compiled));
  return {};
}

Result<void> ExpertRequests::set(Request& request, const std::string& name, DType dtype, Shape shape,
                                 const void* memory) {
  const auto tensor = runtime_->tensor(dtype, shape, const_cast<void*>(memory));
  RETURN_IF_ERROR(tensor);
  return request.set(name, *tensor);
}

Result<BoundExperts> ExpertRequests::make(const ExpertShape& s) {
  const auto compiled = compiled_.find(s);
  CHECK(compiled != compiled_.end());
  auto request = compiled->second.request();
  RETURN_IF_ERROR(request);
  BoundExperts b{.shape = s, .request = std::move(*request), .slots = {}};
  b.slots.resize(static_cast<size_t>(s.slots));
  int64_t bytes = 0;
  const auto place = [&bytes](int64_t values, int64_t each) {
    const int64_t at = bytes;
    bytes += round_up(values * each, 64);
    return at;
  };
  const int64_t choices = s.grouped ? 0 : s.rows * s.slots;
  const int64_t x = place(s.all_rows() * s.hidden, 4), y = place(s.all_rows() * s.outputs, 4),
                weight = place(choices, 4), chosen = place(choices, 4), scales = place(s.slots * s.scales(), 2),
                biases = place(s.biases ? s.slots * s.scales() : 0, 4);
  auto memory = memory_.allocate(bytes);
  RETURN_IF_ERROR(memory);
  b.memory = std::move(*memory);
  const auto floats = [&b](int64_t at) { return reinterpret_cast<float*>(b.memory.get() + at); };
  const auto own = [&](const char* name, float*& to, int64_t at, Shape shape) {
    to = floats(at);
    return set(b.request, name, DType::f32, std::move(shape), to);
  };
  RETURN_IF_ERROR(own("x", b.x, x, {s.all_rows(), s.hidden}));
  RETURN_IF_ERROR(own("y", b.y, y, {s.all_rows(), s.outputs}));
  if (!s.grouped) RETURN_IF_ERROR(own("weight", b.weight, weight, {s.rows, s.slots}));
  if (s.chooses()) RETURN_IF_ERROR(own("chosen", b.chosen, chosen, {s.rows, s.slots}));
  if (s.biases) RETURN_IF_ERROR(own("biases", b.biases, biases, {s.slots, s.scales()}));
  b.scales = b.memory.get() + scales;
  RETURN_IF_ERROR(set(b.request, "scales", DType::f16, {s.slots, s.scales()}, b.scales));
  ++counts_.made;
  return b;
}

// The one that has rested longest, where it is of another shape: its rows come no more for now. Of equal ones the last
// layer's: layers come in the same order in each step, so the first ones keep theirs.
ExpertRequests::Uses::iterator ExpertRequests::victim(const ExpertShape& shape) {
  const auto rested = std::find_if(uses_.rbegin(), uses_.rend(), [](const Held& h) { return !h.bound.running; });
  CHECK(rested != uses_.rend());
  auto victim = std::next(rested).base();
  if (victim->bound.shape != shape) return victim;
  for (auto held = uses_.begin(); held != uses_.end(); ++held)
    if (!held->bound.running && held->bound.shape == shape && held->user > victim->user) victim = held;
  return victim;
}

Result<BoundExperts*> ExpertRequests::request_for(const ExpertShape& shape, int64_t user) {
  auto found = std::ranges::find_if(
      uses_, [&](const Held& h) { return h.user == user && h.bound.shape == shape && !h.bound.running; });
  if (found == uses_.end() && static_cast<int>(uses_.size()) >= most_) {
    found = victim(shape);
    if (found->bound.shape != shape) {
      uses_.erase(found);  // before another is made: so many at the same time
      found = uses_.end();
    }
  }
  if (found == uses_.end()) {
    auto made = make(shape);
    RETURN_IF_ERROR(made);
    uses_.push_front({user, std::move(*made)});
    return &uses_.front().bound;
  }
  found->user = user;
  uses_.splice(uses_.begin(), uses_, found);
  return &uses_.front().bound;
}

Result<void> ExpertRequests::bind(BoundExperts& b, size_t slot, const ExpertStack& stack, int64_t expert) {
  const ExpertShape& s = b.shape;
  b.slots[slot] = {};
  RETURN_IF_ERROR(
      set(b.request, fmt::format("gate_up.{}", slot), DType::i4, {2 * s.inner, s.hidden}, stack.gate_up(expert)));
  RETURN_IF_ERROR(set(b.request, fmt::format("down.{}", slot), DType::i4, {s.outputs, s.inner}, stack.down(expert)));
  const auto at = static_cast<int64_t>(slot) * s.scales();
  stack.read_scales(expert, b.scales + at * 2);
  if (s.biases) stack.read_biases(expert, b.biases + at);
  b.slots[slot] = {.stack = &stack, .expert = expert};
  return {};
}

Result<BoundExperts*> ExpertRequests::take(const ExpertShape& shape, int64_t user, const ExpertStack& stack,
                                           std::span<const int64_t> experts, std::span<int64_t> slots) {
  CHECK(!experts.empty() && static_cast<int64_t>(experts.size()) <= shape.slots && slots.size() == experts.size());
  auto taken = request_for(shape, user);
  RETURN_IF_ERROR(taken);
  BoundExperts& b = **taken;
  ++clock_;
  const auto use = [&](size_t i, size_t slot) {
    slots[i] = static_cast<int64_t>(slot);
    b.slots[slot].last_use = clock_;
  };
  std::vector<size_t> absent;
  for (size_t i = 0; i < experts.size(); ++i) {
    const auto there = std::ranges::find_if(b.slots, [&](const BoundExperts::Slot& s) {
      return s.stack == &stack && s.expert == experts[i] && s.last_use < clock_;
    });
    if (there == b.slots.end())
      absent.push_back(i);
    else
      use(i, static_cast<size_t>(there - b.slots.begin()));
  }
  counts_.kept += static_cast<int64_t>(experts.size() - absent.size());
  for (const size_t i : absent) {
    const auto oldest = std::ranges::min_element(b.slots, {}, &BoundExperts::Slot::last_use);
    const auto slot = static_cast<size_t>(oldest - b.slots.begin());
    RETURN_IF_ERROR(bind(b, slot, stack, experts[i]));
    ++counts_.bound;
    use(i, slot);
  }
  // A request wants every input; what a slot without use computes is multiplied with zero, or not read.
  for (size_t slot = 0; slot < b.slots.size(); ++slot)
    if (b.slots[slot].stack == nullptr) RETURN_IF_ERROR(bind(b, slot, stack, experts.front()));
  return &b;
}

Result<void> ExpertRequests::start(BoundExperts& b) {
  RETURN_IF_ERROR(b.request.start());
  b.running = true;
  ++counts_.runs;
  return {};
}

Result<void> ExpertRequests::wait(BoundExperts& b) {
  if (!b.running) return {};
  b.running = false;
  const auto start = std::chrono::steady_clock::now();
  auto done = b.request.wait();
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return done;
}

}  // namespace onw::openvino
