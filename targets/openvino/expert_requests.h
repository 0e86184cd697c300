// Requests of graphs of experts, with experts bound to their slots where they lie. An expert that was bound and is
// wanted again stays where it is, so only what changes is set; who comes back finds its request. A driver allows a
// process so many requests: beyond their number one is taken from another user.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "targets/openvino/expert_graph.h"
#include "targets/openvino/expert_stack.h"
#include "targets/openvino/host_memory.h"
#include "targets/openvino/runtime.h"

namespace onw::openvino {

// Lowered and compiled for the device.
using CompileExperts = std::function<Result<CompiledModel>(const ExpertShape& shape)>;

// A request with the memory of its rows, to be written before a run and read behind it.
struct BoundExperts {
  ExpertShape shape;
  Request request;
  std::shared_ptr<std::byte> memory = nullptr;
  float *x = nullptr, *weight = nullptr, *chosen = nullptr, *y = nullptr;  // as the graph has them; null: it has none
  std::byte* scales = nullptr;
  float* biases = nullptr;
  struct Slot {
    const ExpertStack* stack = nullptr;  // null: nothing yet
    int64_t expert = 0;
    int64_t last_use = 0;
  };
  std::vector<Slot> slots;
  bool running = false;
};

class ExpertRequests {
 public:
  // `most`: requests at the same time, at least two.
  ExpertRequests(std::shared_ptr<const Runtime> runtime, CompileExperts compile, HostMemory memory, int most);

  // Compiles what is not compiled yet. Errors: those of the compiler.
  Result<void> compile(const ExpertShape& shape);

  // A request that is not running, with `experts` of the stack bound; slots[i] is where experts[i] is. `user` is who
  // finds it again: a layer's run, one of two in turn. Errors: internal with the library's message; out_of_memory.
  Result<BoundExperts*> take(const ExpertShape& shape, int64_t user, const ExpertStack& stack,
                             std::span<const int64_t> experts, std::span<int64_t> slots);
  Result<void> start(BoundExperts& bound);
  // Of one that was started; nothing for others.
  Result<void> wait(BoundExperts& bound);

  struct Counts {
    int64_t compiled = 0, made = 0, runs = 0;
    int64_t bound = 0, kept = 0;  // wanted experts: bound for it, or there already
  };
  const Counts& counts() const { return counts_; }
  double seconds() const { return seconds_; }  // that the host waited for the device

 private:
  struct Held {
    int64_t user = 0;
    BoundExperts bound;
  };
  using Uses = std::list<Held>;  // the latest first

  Result<BoundExperts*> request_for(const ExpertShape& shape, int64_t user);
  Uses::iterator victim(const ExpertShape& shape);
  Result<BoundExperts> make(const ExpertShape& shape);
  Result<void> set(Request& request, const std::string& name, DType dtype, Shape shape, const void* memory);
  Result<void> bind(BoundExperts& bound, size_t slot, const ExpertStack& stack, int64_t expert);

  std::shared_ptr<const Runtime> runtime_;
  CompileExperts compile_;
  HostMemory memory_;
  int most_;
  std::map<ExpertShape, CompiledModel> compiled_;
  Uses uses_;
  int64_t clock_ = 0;
  Counts counts_;
  double seconds_ = 0;
};

}  // namespace onw::openvino
