// Requests of attention graphs, bound to the chunks that they read: a chunk is bound once and runs step after step,
// nothing being set but what moved. A driver allows a process so many requests: beyond their number, the one that was
// used least recently is bound anew.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <span>

#include "targets/openvino/attention_graph.h"
#include "targets/openvino/host_memory.h"
#include "targets/openvino/kv_chunks.h"
#include "targets/openvino/runtime.h"

namespace onw::openvino {

// Lowered and compiled for the device.
using CompileAttention = std::function<Result<CompiledModel>(const AttentionShape& shape)>;

class AttentionRequests {
 public:
  // `most`: requests at the same time, at least one.
  AttentionRequests(std::shared_ptr<const Runtime> runtime, CompileAttention compile, HostMemory memory, int most)
      : runtime_(std::move(runtime)), compile_(std::move(compile)), memory_(std::move(memory)), most_(most) {}

  // Compiles what is not compiled yet. Errors: those of the compiler.
  Result<void> compile(const AttentionShape& shape);

  // Of all rows of the shape, valid until the next run: [heads, rows], [heads, rows], [heads, rows, value_dim].
  struct Parts {
    std::span<const float> m, l, o;
  };
  struct Call {
    AttentionShape shape;  // with rows and length
    const KvChunk* chunk = nullptr;
    const float* q = nullptr;
    const float* mask = nullptr;
  };
  Result<Parts> run(const Call& call);

  struct Counts {
    int64_t compiled = 0, made = 0, rebound = 0, runs = 0;
  };
  const Counts& counts() const { return counts_; }
  int held() const { return static_cast<int>(bound_.size()); }
  double seconds() const { return seconds_; }  // inside the device

 private:
  struct Outputs {
    std::shared_ptr<std::byte> memory;
    float *m = nullptr, *l = nullptr, *o = nullptr;
  };
  struct Bound {
    AttentionShape shape;
    Request request;
    uint64_t chunk = 0;
    const float *q = nullptr, *mask = nullptr;
  };
  using Key = std::pair<uint64_t, AttentionShape>;  // by the chunk's id
  using Uses = std::list<Bound>;                    // the latest first

  Result<Bound*> bound_for(const Call& call);
  Result<Bound> take(const AttentionShape& shape);
  Result<void> set(Request& request, const char* name, DType dtype, Shape shape, const void* memory);
  Result<void> bind_outputs(Bound& bound);
  Result<void> bind_chunk(Bound& bound, const KvChunk& chunk);

  std::shared_ptr<const Runtime> runtime_;
  CompileAttention compile_;
  HostMemory memory_;
  int most_;
  std::map<AttentionShape, CompiledModel> compiled_;
  std::map<AttentionShape, Outputs> outputs_;
  Uses uses_;
  std::map<Key, Uses::iterator> bound_;
  Counts counts_;
  double seconds_ = 0;
};

}  // namespace onw::openvino
