// One compiled graph with its request, bound to places in the arena.
#pragma once

#include <map>
#include <optional>
#include <string_view>

#include "targets/openvino/buffers.h"
#include "targets/openvino/lower.h"
#include "targets/openvino/runtime.h"

namespace onw::openvino {

class Graph {
 public:
  // `fixed_rows`: of a static graph; kRows where the graph takes any number. Errors: those of Runtime.
  static Result<Graph> compile(std::shared_ptr<const Runtime> runtime, const Ir& ir, const Tensor& constants,
                               int64_t fixed_rows, const std::string& device, const Properties& properties);

  // The same of what is compiled already.
  static Result<Graph> of(CompiledModel compiled, std::shared_ptr<const Runtime> runtime, const Ir& ir,
                          int64_t fixed_rows);

  // Runs it over `rows` rows of the values at their slots, from row `first` on. Errors: internal, with the library's
  // message.
  Result<void> run(int64_t rows, const BufferPlan& buffers, std::byte* arena, int64_t first = 0);

  // Binds a static graph to its places once for all, so that a run sets nothing.
  Result<void> wire(const BufferPlan& buffers, std::byte* arena) { return bind(fixed_rows_, buffers, arena, 0); }
  bool has_port(std::string_view name) const;
  // Where the ports are to be that have no place among the buffers, by name; what stays where it was is not set again.
  void place_states(const std::map<std::string, std::byte*, std::less<>>& places);
  // From now on a request for each run: a driver allows a process so many. It costs what making one costs.
  void make_requests_as_needed();

 private:
  Result<void> bind(int64_t rows, const BufferPlan& buffers, std::byte* arena, int64_t first);

  std::shared_ptr<const Runtime> runtime_;
  CompiledModel compiled_;
  std::optional<Request> request_;
  bool keeps_request_ = true;
  // States: no rows that one graph hands to another.
  struct StatePort {
    IrPort port;
    std::byte* at = nullptr;     // where it is to be
    std::byte* bound = nullptr;  // where the request has it
  };
  StatePort& state_port(const IrPort& port);
  Result<void> bind_states();

  std::vector<IrPort> ports_;
  std::vector<StatePort> states_;
  int64_t fixed_rows_ = kRows;
  int64_t bound_rows_ = 0;  // 0: not bound yet
  int64_t bound_first_ = 0;
};

}  // namespace onw::openvino
