// A model as data: functions over shared weights and states, and what the host must prepare. A family makes one from a
// config; the converter reads from it where each weight comes from; targets run it. No room but models/ knows a
// family's name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/weight_format.h"

namespace onw {

enum class WeightRole : uint8_t {
  matrix,     // takes the default format
  embedding,  // [vocabulary, hidden], looked up by the host; where tied, the head too
  lookup,     // [vocabulary, n]: a table beside the embedding, looked up by the host alone (Program::lookups)
  head,       // [vocabulary, hidden]
  vector,     // norms, biases, sinks, kernels of convolutions: F32
  router,     // a small matrix that decides much (of routers, of decays): a plain format
  expert,     // [experts, out, in], stored expert by expert in records; [experts, n] are their biases: F32
};

// What the converter does to a published tensor to make it ours.
enum class Fold : uint8_t {
  none,
  add_one,      // norms stored as an offset from 1
  rope_unpair,  // rows of q and k in pairs (2i, 2i+1) per head, to halves (i, i + d/2)
  head_half,    // per head, head_dim rows of ours and head_dim of another: `begin` is 0 or head_dim
  minus_exp,    // x to -e^x
};

struct WeightSource {
  std::vector<std::string>
      names;  // alternatives, the first that exists is taken; empty: the tensor is not in such files. For experts
              // "{e}" is the number of one, a name without it that of the whole stack [experts, rows, in]
  Fold fold = Fold::none;
  int64_t begin = 0;  // rows [begin, begin + our outputs) of the published tensor: one half of a fused one. For experts
                      // of each one's rows in a stack; tensors of one expert are taken whole
  int64_t step = 1;   // every so many rows from `begin` on: gates and ups in turns
  bool transposed = false;  // experts published as [experts, in, rows], where they are plain numbers
};

struct WeightDecl {
  std::string name;  // plain: "layers.3.attn.q"
  Shape shape;       // [out, in], or [n] for vectors; with the experts before them for experts
  WeightRole role = WeightRole::matrix;
  int64_t head_dim = 0;  // for rope_unpair and head_half
  WeightSource
      hugging_face;  // names without the prefix of the file ("layers.3.self_attn.q_proj.weight", "lm_head.weight")
  WeightSource gguf;
  std::string group;                        // weights of one group and format lie side by side: "layers.3.attn.qkv"
  WeightFormat format = WeightFormat::f32;  // as stored, once the weights are bound (passes/bind_formats)
  std::vector<std::string> parts;           // of a merged weight: those that follow each other, outputs after outputs
};

enum class StateKind : uint8_t { kv, conv, delta };

struct StateDecl {
  std::string name;  // "kv.3"
  StateKind kind = StateKind::kv;
  int layer = 0;
  int64_t heads = 0;      // kv heads; value heads of a delta state; channels of a convolution
  int64_t head_dim = 0;   // of keys
  int64_t value_dim = 0;  // of values
  int64_t window = 0;     // tokens that can still be seen; 0: all
  int64_t kernel = 0;     // of a convolution
  int64_t key_heads = 0;  // of a delta state
};

// Rotary tables by kind: the host makes cos and sin of rope position x inv_freq, times `scaling`, in double, rounded
// once to FP32. The functions take them as inputs "<name>.cos" and "<name>.sin", [S, inv_freq.size()].
struct RopeTable {
  std::string name;
  std::vector<double> inv_freq;
  double scaling = 1;
};

// A table beside the embedding: of it the host gives row `token`, times `scale`, as an input of body.
struct RowLookup {
  std::string input;   // [S, n]
  std::string weight;  // [vocabulary or more, n], of the role lookup
  double scale = 1;
};

struct Program {
  std::string family;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t vocabulary = 0;
  int64_t max_context = 0;  // positions that the model was made for
  std::vector<WeightDecl> weights;
  std::vector<StateDecl> states;
  std::vector<RopeTable> rope_tables;

  // The host looks x up: row `token` of this weight, times embedding_scale.
  std::string embedding = "embed";
  double embedding_scale = 1;
  std::vector<RowLookup> lookups;

  // body: "x" [S, hidden], the lookups and the rope tables in, "hidden" [S, hidden] out (after the last norm).
  // head: "hidden" [S, hidden] in, "logits" [S, vocabulary] out.
  std::vector<Function> functions;

  const Function* function(std::string_view name) const;
  const WeightDecl* weight(std::string_view name) const;
  int state(std::string_view name) const;  // its index, -1 where there is none
  // The place of a state among those of its sort: K and V, or recurrent ones (everything else).
  int place(int state) const;
};

}  // namespace onw
