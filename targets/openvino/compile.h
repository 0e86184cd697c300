// From a Program's segments to graphs that run: lowered, compiled for the device, with a request each.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "passes/cut.h"
#include "targets/openvino/constants.h"
#include "targets/openvino/graph.h"
#include "targets/openvino/openvino.h"

namespace onw::openvino {

// The graphs for one number of rows.
struct Block {
  int64_t rows = kRows;
  std::vector<Graph> body;
  std::vector<Graph> head;  // one
};

struct CompiledBlocks {
  std::vector<Block> blocks;             // ascending by rows
  std::unique_ptr<Constants> constants;  // the graphs may still read the small ones: keep it as long as them
};

// What the device is told, where the options name nothing else: how its CPU device is run. Unless exact, that device
// quantises the rows of products by groups of 128 where all weights' groups let it: a token is decoded half as fast
// again as in BF16. Of smaller groups it would compute in FP32; there it takes the precision that it likes best (BF16
// where the processor multiplies it: prompts three times as fast, KL 0.004; by groups of 32 in FP32 0.025; SmolLM2-135M
// in Q4_1 and 1b, Xeon with AMX, 2026-11).
Properties device_properties(const OpenVinoOptions& options, const Program& program);

// One block for each number of rows of the options, or one that takes any. `device`: a column of the table of formats
// (lower.h). Errors: those of lower_program and Graph; cancelled.
Result<CompiledBlocks> compile_blocks(const Program& program, const CutFunction& cut, const WeightSet& weights,
                                      const OpenVinoOptions& options, std::string_view device);

// A graph by itself, compiled as the others are: by the store and its children where the options have one. `constants`
// outlive it. Errors: those of compile_all and Runtime.
Result<CompiledModel> compile_graph(const CompileJob& job, const Constants& constants, const Properties& properties,
                                    const OpenVinoOptions& options);

// Graphs into the store of options.blobs, one process after the other, and none of them loaded here: for who loads them
// when nothing runs. Errors: those of compile_all.
Result<std::vector<Blob>> compile_for_later(std::span<const CompileJob> jobs, const Constants& constants,
                                            const Properties& properties, const OpenVinoOptions& options,
                                            const CancelToken& cancel);

// One of them; one that does not load is removed from the store, and not compiled again here. Errors: those of
// load_blob.
Result<CompiledModel> load_compiled(const CompileJob& job, const Blob& blob, const Constants& constants,
                                    const Properties& properties, const OpenVinoOptions& options);

// The same graphs into the store of options.blobs alone, ahead of any use: for a device that need not be here. Errors:
// those of lower_program and compile_all.
Result<std::vector<Blob>> compile_into_store(const Program& program, const WeightSet& weights,
                                             const OpenVinoOptions& options, std::string_view device);

}  // namespace onw::openvino
