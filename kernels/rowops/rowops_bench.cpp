// Row operations on one row in the first-level cache: GB/s of the floats read and written.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "kernels/rowops/rowops.h"

namespace onw {
namespace {

constexpr int64_t kInputs = 4096;

struct Row {
  std::vector<float> x, y, out, cos, sin;
  std::vector<std::byte> memory;
  QuantizedRows q;
  Row() : x(kInputs), y(kInputs), out(kInputs), cos(kInputs / 2), sin(kInputs / 2) {
    for (int64_t i = 0; i < kInputs; i++) x[i] = static_cast<float>((i * 7919) % 1000) / 100 - 5, y[i] = 1.0f / (i + 1);
    memory.resize(quantized_rows_bytes(1, kInputs, 128) + 64);
    std::byte* aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    q = place_quantized_rows(aligned, 1, kInputs, 128);
  }
};

using Run = void (*)(const RowOps&, Row&);
struct Case {
  const char* name;
  int64_t bytes;
  Run run;
};

const Case kCases[] = {
    {"rms_norm", 12 * kInputs,
     [](const RowOps& o, Row& r) { o.rms_norm({r.y.data()}, r.x.data(), kInputs, r.out.data()); }},
    {"quantise", 5 * kInputs, [](const RowOps& o, Row& r) { o.quantise(r.x.data(), {&r.q, 0, 0, kInputs}); }},
    {"rms_norm_quantise", 9 * kInputs,
     [](const RowOps& o, Row& r) { o.rms_norm_quantise({r.y.data()}, r.x.data(), r.q, 0); }},
    {"silu_gated_quantise", 9 * kInputs,
     [](const RowOps& o, Row& r) { o.gated_quantise({}, r.x.data(), r.y.data(), {&r.q, 0, 0, kInputs}); }},
    {"gelu_tanh_gated", 12 * kInputs,
     [](const RowOps& o, Row& r) {
       o.gated({scalar::Activation::gelu_tanh}, r.x.data(), r.y.data(), kInputs, r.out.data());
     }},
    {"gelu_erf", 8 * kInputs,
     [](const RowOps& o, Row& r) { o.activate(scalar::Activation::gelu, r.x.data(), kInputs, r.out.data()); }},
    {"rope", 12 * kInputs,
     [](const RowOps& o, Row& r) { o.rope(r.out.data(), r.cos.data(), r.sin.data(), kInputs / 2); }},
    {"softmax", 8 * kInputs, [](const RowOps& o, Row& r) { o.softmax(r.x.data(), kInputs, r.out.data()); }},
    {"add", 12 * kInputs, [](const RowOps& o, Row& r) { o.add(r.x.data(), r.y.data(), kInputs, r.out.data()); }},
};

void run(benchmark::State& state, const RowOps& ops, const Case& what) {
  Row row;
  for (auto _ : state) {
    what.run(ops, row);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * what.bytes);
}

const bool kRegistered = [] {
  const auto levels = available_isas(cpu_features());
  for (const RowOpsRow& row : row_ops_table())
    for (const Isa level : levels)
      if (level == row.needs)
        for (const Case& what : kCases)
          benchmark::RegisterBenchmark((std::string(row.name) + "/" + what.name).c_str(),
                                       [&row, &what](benchmark::State& s) { run(s, *row.ops, what); });
  return true;
}();

}  // namespace
}  // namespace onw
