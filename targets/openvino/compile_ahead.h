// Every graph of a model into the store, ahead of any use: for a device that need not be here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "targets/openvino/compile.h"

namespace onw::openvino {

struct StoredGraphs {
  std::vector<Blob> blobs;         // segments and head, attention over chunks, then graphs with attention inside
  int64_t fused_tokens = 0;        // up to which there are those
  std::string fused_trouble = {};  // why there are none, or none further
};

// What a target with these options (static graphs, a store) compiles when it is made, and the graphs with attention
// inside that it compiles at once beside the answers (options.fused); none of them is loaded. `device`: a column of the
// table of formats. Errors: those of lower_program and compile_all; what graphs with attention inside end with is an
// error for cancelled, no_space and io alone.
Result<StoredGraphs> compile_everything_into_store(const Program& program, const WeightSet& weights,
                                                   const OpenVinoOptions& options, std::string_view device);

}  // namespace onw::openvino
