#include "targets/openvino/fused_graph.h"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace onw::openvino {
namespace {

int64_t bytes_of(const Type& type) {
  const int64_t element = type.dtype == DType::i8 ? 1 : type.dtype == DType::f16 ? 2 : 4;
  return std::accumulate(type.shape.begin(), type.shape.end(), element, std::multiplies<>());
}

}  // namespace

Result<FusedGraph> FusedGraph::create(const FusedPlaces& places, const FusedForm& form, std::span<const Ir> graphs,
                                      std::vector<CompiledModel> models) {
  CHECK(graphs.size() == models.size());
  FusedGraph g;
  g.places_ = places;
  g.form_ = form;
  for (size_t i = 0; i < graphs.size(); ++i) {
    auto request = models[i].request();
    RETURN_IF_ERROR(request);
    g.requests_.push_back(std::move(*request));
    for (const IrPort& port : graphs[i].inputs) RETURN_IF_ERROR(g.wire(i, port));
    for (const IrPort& port : graphs[i].outputs) RETURN_IF_ERROR(g.wire(i, port));
  }
  g.models_ = std::move(models);
  return g;
}

Result<void> FusedGraph::set(size_t graph, const IrPort& port, std::byte* memory) {
  const auto tensor = places_.runtime->tensor(port.type.dtype, port.type.shape, memory);
  RETURN_IF_ERROR(tensor);
  return requests_[graph].set(port.name, *tensor);
}

Result<void> FusedGraph::wire(size_t graph, const IrPort& port) {
  if (const auto slot = places_.buffers.slots.find(port.name); slot != places_.buffers.slots.end())
    return set(graph, port, places_.arena.get() + slot->second.offset);
  if (note_chunk_port(graph, port)) return {};
  auto memory = own_memory(port);
  RETURN_IF_ERROR(memory);
  return set(graph, port, *memory);
}

// Whether it is one that follows the sequence.
bool FusedGraph::note_chunk_port(size_t graph, const IrPort& port) {
  const std::vector<StateDecl>& states = places_.cache->states;
  for (size_t s = 0; s < states.size(); ++s)
    for (size_t i = 0; i < form_.chunks_of(states[s], *places_.cache).size(); ++i)
      for (const auto& [part, name] :
           {std::pair(Part::k, "k"), {Part::v, "v"}, {Part::k_scale, "k_scale"}, {Part::v_scale, "v_scale"}}) {
        if (port.name != fmt::format("{}.{}.{}", states[s].name, name, i)) continue;
        chunk_ports_.push_back(
            {.graph = graph, .port = port, .state = s, .chunk = static_cast<int64_t>(i), .part = part});
        return true;
      }
  return false;
}

// A mask, which the graphs of all pieces share, or what a layer writes.
Result<std::byte*> FusedGraph::own_memory(const IrPort& port) {
  const std::vector<StateDecl>& states = places_.cache->states;
  for (size_t s = 0; s < states.size(); ++s) {
    if (port.name == fmt::format("window{}.mask", states[s].window)) {
      auto found = std::ranges::find(masks_, states[s].window, &Mask::window);
      if (found != masks_.end()) return found->memory.get();
      auto memory = places_.memory.allocate(bytes_of(port.type));
      RETURN_IF_ERROR(memory);
      masks_.push_back({states[s].window, port.type.last() - form_.rows, std::move(*memory)});
      return masks_.back().memory.get();
    }
    const bool is_k = port.name == states[s].name + ".k_new";
    if (!is_k && port.name != states[s].name + ".v_new") continue;
    auto memory = places_.memory.allocate(bytes_of(port.type));
    RETURN_IF_ERROR(memory);
    auto found = std::ranges::find(written_, s, &Written::state);
    Written& written = found != written_.end() ? *found : written_.emplace_back(Written{.state = s, .k = {}, .v = {}});
    std::shared_ptr<std::byte>& kept = is_k ? written.k : written.v;
    kept = std::move(*memory);
    return kept.get();
  }
  return error(Code::internal, "a graph with attention inside has a port '{}' that nobody serves", port.name);
}

// Of the largest input that a sequence may lack; what is masked must be finite.
Result<std::byte*> FusedGraph::zeros() {
  if (zeros_ != nullptr) return zeros_.get();
  int64_t most = 0;
  for (const ChunkPort& p : chunk_ports_) most = std::max(most, bytes_of(p.port.type));
  auto memory = places_.memory.allocate(most);
  RETURN_IF_ERROR(memory);
  zeros_ = std::move(*memory);
  return zeros_.get();
}

Result<void> FusedGraph::bind(const ChunkSequence& sequence) {
  for (ChunkPort& p : chunk_ports_) {
    const KvChunk* chunk = p.chunk < sequence.chunks(p.state) ? &sequence.chunk(p.state, p.chunk) : nullptr;
    const uint64_t id = chunk == nullptr ? 0 : chunk->id();
    if (p.bound == id) continue;
    const auto memory = [&]() -> Result<std::byte*> {
      if (chunk == nullptr) return zeros();
      switch (p.part) {
        case Part::k:
          return chunk->k();
        case Part::v:
          return chunk->v();
        case Part::k_scale:
          return reinterpret_cast<std::byte*>(chunk->k_scale());
        case Part::v_scale:
          break;
      }
      return reinterpret_cast<std::byte*>(chunk->v_scale());
    }();
    RETURN_IF_ERROR(memory);
    RETURN_IF_ERROR(set(p.graph, p.port, *memory));
    p.bound = id;
  }
  return {};
}

Result<void> FusedGraph::run(ChunkSequence& sequence, int64_t first, int64_t rows, const CancelToken& cancel) {
  CHECK(rows <= form_.rows && first <= form_.length);
  RETURN_IF_ERROR(bind(sequence));
  for (const Mask& m : masks_)
    write_fused_mask(form_, m.positions, m.window, first, rows, reinterpret_cast<float*>(m.memory.get()));
  const auto start = std::chrono::steady_clock::now();
  for (Request& request : requests_) {
    if (cancel.cancelled()) return error(Code::cancelled, "cancelled");
    RETURN_IF_ERROR(request.run());
  }
  device_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  keep(sequence, first, rows);
  return {};
}

void FusedGraph::keep(ChunkSequence& sequence, int64_t first, int64_t rows) const {
  for (const Written& w : written_) {
    const StateDecl& s = places_.cache->states[w.state];
    const auto* k = reinterpret_cast<const float*>(w.k.get());
    const auto* v = reinterpret_cast<const float*>(w.v.get());
    for (int64_t r = 0; r < rows; ++r)
      sequence.write(w.state, first + r, k + r * s.heads * s.head_dim, v + r * s.heads * s.value_dim);
  }
}

}  // namespace onw::openvino
