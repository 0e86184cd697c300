// The graphs of one fused form, ready to run: a request each, wired to the places of their inputs and outputs, and
// bound to the chunks of the sequence that runs.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "graph/program.h"
#include "targets/executable.h"
#include "targets/openvino/buffers.h"
#include "targets/openvino/fused.h"
#include "targets/openvino/host_memory.h"
#include "targets/openvino/runtime.h"

namespace onw::openvino {

// What all fused graphs of a model share; the values that are not the cache have their places in an arena of their own,
// because an input may not lie where an output does.
struct FusedPlaces {
  std::shared_ptr<const Runtime> runtime;
  std::shared_ptr<const ChunkForm> cache;
  HostMemory memory;
  BufferPlan buffers;
  std::shared_ptr<std::byte> arena;
};

class FusedGraph {
 public:
  // A request for each model. Errors: out_of_memory, internal with the library's message.
  static Result<FusedGraph> create(const FusedPlaces& places, const FusedForm& form, std::span<const Ir> graphs,
                                   std::vector<CompiledModel> models);

  const FusedForm& form() const { return form_; }

  // Rows [first, first + rows) of the sequence, whose inputs lie in the arena, all form().rows of them; their K and V
  // go into the sequence's chunks, which must have room. Errors: cancelled between two graphs; internal with the
  // library's message.
  Result<void> run(ChunkSequence& sequence, int64_t first, int64_t rows, const CancelToken& cancel);

  double device_seconds() const { return device_seconds_; }

 private:
  enum class Part { k, v, k_scale, v_scale };
  // An input that follows the sequence.
  struct ChunkPort {
    size_t graph = 0;
    IrPort port;
    size_t state = 0;
    int64_t chunk = 0;
    Part part = Part::k;
    uint64_t bound = ~uint64_t{0};  // the chunk's id; 0: zeros, where the sequence has no such chunk yet
  };
  struct Mask {
    int64_t window = 0, positions = 0;
    std::shared_ptr<std::byte> memory;
  };
  // What a layer writes: [rows, heads, d] each.
  struct Written {
    size_t state = 0;
    std::shared_ptr<std::byte> k, v;
  };

  Result<void> wire(size_t graph, const IrPort& port);
  bool note_chunk_port(size_t graph, const IrPort& port);
  Result<std::byte*> own_memory(const IrPort& port);
  Result<void> set(size_t graph, const IrPort& port, std::byte* memory);
  Result<void> bind(const ChunkSequence& sequence);
  Result<std::byte*> zeros();
  void keep(ChunkSequence& sequence, int64_t first, int64_t rows) const;

  FusedPlaces places_;
  FusedForm form_;
  std::vector<CompiledModel> models_;
  std::vector<Request> requests_;
  std::vector<ChunkPort> chunk_ports_;
  std::vector<Mask> masks_;
  std::vector<Written> written_;
  std::shared_ptr<std::byte> zeros_;
  double device_seconds_ = 0;
};

}  // namespace onw::openvino
