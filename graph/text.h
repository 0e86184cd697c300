// The text form of a Program: for `inspect --graph`, for tests of passes, for people. What print writes, parse reads
// back.
//
//   program llama layers=2 hidden=48 vocabulary=101 max_context=256 embedding=embed embedding_scale=1
//   weight layers.0.attn.q [64,48] f32 matrix group=layers.0.attn.qkv
//   lookup per_layer weight=embed_per_layer scale=16
//   state kv.0 kv layer=0 heads=2 head_dim=16 value_dim=16
//   rope full scaling=1 inv_freq=1,0.31622776601683794,...
//   body {
//     %0 = input "x" : f32[S,48]
//     %2 = rms_norm(%0, %1; eps=1e-05) "L00/mixer_norm" : f32[S,48]
//     return hidden=%40
//   }
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "graph/program.h"

namespace onw {

std::string print(const Function& function);
std::string print(const Program& program);

// Errors: bad_format with the line. Where weights come from (WeightDecl's sources) is not part of the text.
Result<Program> parse_program(std::string_view text);
// One function, against the declarations of `program`; it is verified at neither level.
Result<Function> parse_function(std::string_view text);

// The graph in Graphviz's language, for `inspect --dot`.
std::string dot(const Function& function);

}  // namespace onw
