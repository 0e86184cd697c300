// The OpenVINO target: a Program's segments as OpenVINO graphs, the host doing what no fixed graph can hold: looking up
// embeddings, keeping K and V, attention over them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/program.h"
#include "kernels/isa.h"
#include "targets/executable.h"
#include "targets/openvino/blob_options.h"
#include "targets/openvino/fused_news.h"
#include "targets/openvino/runtime.h"
#include "targets/weights.h"

namespace onw {

// Graphs with attention inside (targets/openvino/fused_variants.h).
struct FusedOptions {
  // Loaded at the same time, each with the weights once more, for static graphs alone; 0: none are made.
  int variants = 0;
  int layers = 0;  // in one graph; 0: all
  // Those for so many positions are made at once, longer ones when a conversation has a quarter of theirs.
  int64_t at_once_positions = 0;
  // From the thread that makes them, and from the engine's.
  std::function<void(const FusedNews& news)> on_news = {};
};

struct OpenVinoOptions {
  std::shared_ptr<const openvino::Runtime> runtime;
  KvFormat kv = KvFormat::f16;
  // FP32 throughout: for comparisons. Else what the device does fastest with the weights' formats (compile.h).
  bool exact = false;
  // Static graphs for blocks of so many rows, ascending, and attention as graphs over chunks of the cache, which the
  // host merges. None: one graph for any number of rows, and attention by the host.
  std::vector<int64_t> block_rows = {};
  int64_t chunk_positions = 1024;  // of the first chunk
  // How many graphs of each block keep their request, the head first, and how many requests attention has: a driver
  // allows a process so many (platforms.h). None: all.
  std::vector<int> resident_graphs = {};
  int attention_requests = 64;
  // Experts in the form for it as inputs of graphs, at run time, by so many requests at the same time, at least two;
  // then a prompt goes layer by layer, as much of it as a step has. 0: the host computes all experts with the CPU's
  // kernels.
  int expert_requests = 0;
  FusedOptions fused = {};
  std::string platform = "openvino:CPU";  // a row of platforms.h
  // Where the graphs are compiled and run, as OpenVINO names it; with which properties, where not those of its CPU
  // device.
  std::string openvino_device = "CPU";
  openvino::Properties properties = {};
  Isa isa = Isa::generic;  // of the host's steps
  int threads = 1;
  std::vector<int> cpus = {};  // of the host's threads, fastest first; empty: they may roam
  // Where compiled graphs are kept, and by whom they are compiled. None: in this process, and not kept.
  std::optional<openvino::BlobOptions> blobs = {};
  int max_step_rows = 512;
  int64_t max_context = 0;                                    // 0: the model's
  std::function<bool(int done, int total)> on_compiled = {};  // graphs of all; false stops
};

// Runs on a device of OpenVINO's. The weights must lie in rows (targets/relaid_weights.h). Errors: missing_tensor,
// unsupported (a state or format that the device does not take), cancelled, out_of_memory; internal with OpenVINO's
// message.
Result<std::unique_ptr<Executable>> make_openvino(const Program& program, WeightSet weights,
                                                  const OpenVinoOptions& options);

}  // namespace onw
