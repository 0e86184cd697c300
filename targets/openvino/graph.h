// One compiled graph with its request, bound to places in the arena.
#pragma once

#include "targets/openvino/buffers.h"
#include "targets/openvino/lower.h"
#include "targets/openvino/runtime.h"

namespace onw::openvino {

class Graph {
 public:
  // `fixed_rows`: of a static graph; kRows where the graph takes any number. Errors: those of Runtime.
  static Result<Graph> compile(std::shared_ptr<const Runtime> runtime, const Ir& ir, const Tensor& constants,
                               int64_t fixed_rows, const std::string& device, const Properties& properties);

  // Runs it over `rows` rows of the values at their slots. Errors: internal, with the library's message.
  Result<void> run(int64_t rows, const BufferPlan& buffers, std::byte* arena);

 private:
  Result<void> bind(int64_t rows, const BufferPlan& buffers, std::byte* arena);

  std::shared_ptr<const Runtime> runtime_;
  CompiledModel compiled_;
  Request request_;
  std::vector<IrPort> ports_;
  int64_t fixed_rows_ = kRows;
  int64_t bound_rows_ = 0;  // 0: not bound yet
};

}  // namespace onw::openvino
