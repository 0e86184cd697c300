// Puts the integer arithmetic of docs/arithmetic.md into a graph: what the CPU computes, and what the quantised
// reference judges it by.
#pragma once

#include "graph/program.h"

namespace onw {

// Every value that a linear with a quantised weight reads goes through one quantize, shared by all its readers; the
// group is the smallest among them (a per-channel weight asks for the largest of 128, 64, 32 that divides the inputs).
// `kv` ("int8", "f16" or "f32") is written on kv_write and attention. The formats must be bound. Linears with plain
// weights keep reading FP32. Experts do as linears do: x by gate and up, and what stands between by down, as their
// attribute `group`.
Program quantise_activations(const Program& program, std::string_view kv);

// Only the cache's format: the arithmetic of an unquantised run over such a cache.
Program set_kv_format(const Program& program, std::string_view kv);

}  // namespace onw
