// The experts of a layer where they lie, in the form in which graphs take them at run time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "graph/program.h"
#include "targets/openvino/expert_graph.h"
#include "targets/openvino/host_memory.h"
#include "targets/weights.h"

namespace onw::openvino {

class ExpertStack {
 public:
  // Of a node of experts. None where graphs do not take them at run time: a format other than 4 bits with one scale an
  // output, in tiles, or gate and up apart. Errors: missing_tensor.
  static Result<std::optional<ExpertStack>> find(const Program& program, std::span<const std::string> operands,
                                                 const WeightSet& weights);

  // Copies the codes into the memory of a device that has its own; such a device would copy them at each run otherwise.
  // Errors: out_of_memory.
  Result<void> bring_to(const HostMemory& memory);

  // Rows, slots and activation are left to the caller.
  ExpertShape shape() const;
  int64_t experts() const { return gate_.experts; }
  int64_t copied_bytes() const { return copy_ == nullptr ? 0 : experts() * (gate_up_bytes() + down_bytes()); }
  // Of one expert, all that it is.
  int64_t expert_bytes() const { return gate_up_bytes() + down_bytes() + shape().scales() * 2; }

  const std::byte* gate_up(int64_t expert) const;
  const std::byte* down(int64_t expert) const;
  // shape().scales() of them, F16; and as many biases, where there are any.
  void read_scales(int64_t expert, std::byte* to) const;
  void read_biases(int64_t expert, float* to) const;

 private:
  int64_t gate_up_bytes() const { return static_cast<int64_t>(gate_.codes.size() + up_.codes.size()); }
  int64_t down_bytes() const { return static_cast<int64_t>(down_.codes.size()); }

  WeightView gate_, up_, down_;
  WeightView gate_bias_, up_bias_, down_bias_;  // of no outputs where there are none
  std::shared_ptr<std::byte> copy_;             // gate, up and down, expert after expert
};

}  // namespace onw::openvino
