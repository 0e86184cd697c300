// What is known of each kind of device that OpenVINO drives, as data: which graphs it takes, how many requests a
// process may hold, and what a planner makes of that for a model.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/kv_format.h"
#include "targets/openvino/runtime.h"

namespace onw::openvino {

struct KnownLimit {
  std::string_view what;
  std::string_view instead;  // what onw does about it
};

struct Platform {
  std::string_view name;      // "4000" as NPU_PLATFORM has it, "GPU", "openvino:CPU"
  std::string_view openvino;  // the device as OpenVINO names it
  std::string_view formats;   // its column of the table of weight formats (store/runs_on.h)
  bool dynamic_rows = false;  // one graph for any number of rows; else a static graph for each of the numbers below
  int64_t decode_rows = 1;
  std::array<int64_t, 2> prompt_rows = {};  // largest first: the first that memory allows
  // Inference requests that one process may hold; 0: no bound is known. On Linux the NPU's driver has some 40 doorbells
  // for all queues of a process, and beyond them the device is gone until the next boot.
  int requests = 0;
  int attention_requests = 0;  // of them, for attention over chunks of the cache, where there are too few for all
  // Experts as run-time inputs of graphs (expert_side.h), by so many of the requests at the same time; 0: the host
  // computes them with the CPU's kernels.
  int expert_requests = 0;
  bool copies_weights = true;  // each compiled number of rows holds the weights anew
  int64_t work_bytes = 0;      // what a compiled number of rows takes beside them
  // Graphs with attention inside (fused_variants.h): whether they are made where nobody says, how many of the requests
  // they may have (0: none are made), and the most constants of one, which its compiler has several times in memory.
  bool fuses = false;
  int fused_requests = 0;
  int64_t fused_graph_bytes = 0;    // 0: any
  std::optional<KvFormat> kv = {};  // none: the model's
  std::span<const std::pair<std::string_view, std::string_view>> properties = {};
  std::span<const KnownLimit> limits = {};
};

std::span<const Platform> all_platforms();
// Null where there is none of that name.
const Platform* find_platform(std::string_view name);

// The platform of an NPU by what the device and the machine say of themselves ("4000", "NPU generation 4000"): the
// newest one for a generation that the table does not have.
const Platform& npu_platform(std::string_view architecture, std::string_view machine);

// As OpenVINO takes them.
Properties properties_of(const Platform& platform);

struct ModelShape {
  int segments = 0;    // of the body
  int attentions = 0;  // layers that attend
  int experts = 0;     // layers whose experts graphs can take at run time
  int64_t weight_bytes = 0;
  int64_t memory_bytes = 0;        // for weights and work of all graphs; 0: not bounded
  std::optional<bool> fused = {};  // whether there are graphs with attention inside; none: as the platform has it
};

// Which graphs stay ready, within the platform's budget.
struct ResidentPlan {
  std::vector<int64_t> block_rows;   // numbers of rows that are compiled, ascending
  std::vector<int> resident_graphs;  // of each: so many of its graphs keep their request, the head first; the others
                                     // make one for each run
  int attention_requests = 0;
  int expert_requests = 0;    // 0: the host computes experts
  int fused_variants = 0;     // lengths of graphs with attention inside that are loaded at the same time
  int fused_layers = 0;       // in each of their graphs
  int fused_graphs = 0;       // of a length
  bool all_resident() const;  // whether no graph has to make its request anew
  int64_t bytes = 0;          // of weights and work
  int graphs = 0;             // segments and head, of each number of rows
  int requests() const;       // held at most, attention's among them
};

// Graphs with attention inside get at most half of the memory that is left beside the others, and their requests first:
// they do in one what the others do in many. Decoding first: its graphs keep their requests before those of prompts do.
// Errors: out_of_memory where not even one number of rows fits, with the numbers.
Result<ResidentPlan> plan_resident(const Platform& platform, const ModelShape& model);

}  // namespace onw::openvino
