// Speed of every matmul kernel beside the roofs of one thread, which are measured in the same run: bytes of weights
// read per second and their share of the read roof, INT8 operations per second and their share of what the level's dot
// product can do (amx: of vpdpbusd, because that is what it has to beat). Rates count CPU time, so that a shared
// machine disturbs them less.
//   kernels_bench --benchmark_filter=q4g128        kernels_bench --benchmark_filter=roof
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstring>
#include <ctime>
#include <map>
#include <random>
#include <vector>

#include "base/huge_memory.h"
#include "kernels/matmul/kernels.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/prepare.h"
#include "kernels/roof/roof.h"

namespace onw {
namespace {

constexpr int64_t kPoolBytes = int64_t{1} << 29;  // far more than the caches hold

// Random bytes that all weights and activations of the benchmarks are cut from.
std::span<std::byte> pool() {
  static const HugeMemory memory(kPoolBytes + (1 << 20));
  static const bool filled = [] {
    std::mt19937_64 random(1);
    const auto bytes = memory.bytes();
    for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      const uint64_t word = random() & 0x1f1f'1f1f'1f1f'1f1f;  // finite scales as well
      std::memcpy(bytes.data() + i, &word, 8);
    }
    return true;
  }();
  (void)filled;
  return memory.bytes();
}

struct Shape {
  int64_t outputs, inputs;
};

// As many weights of one shape as the pool holds, but at most `limit` bytes of them.
std::vector<WeightView> weights(WeightFormat format, Shape shape, int64_t limit) {
  const WeightBytes need = weight_bytes(format, Layout::tiles, shape.outputs, shape.inputs);
  std::vector<WeightView> all;
  const int64_t stride = (need.total() + 4095) / 4096 * 4096;
  for (int64_t at = 0; at + stride <= std::min(limit, kPoolBytes) || all.empty(); at += stride) {
    const auto bytes = std::span<const std::byte>(pool()).subspan(at, stride);
    all.push_back({format, Layout::tiles, shape.outputs, shape.inputs, bytes.subspan(0, need.codes),
                   bytes.subspan(need.codes, need.scales), bytes.subspan(need.codes + need.scales, need.minima)});
  }
  return all;
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// The best of some tries: work per second of CPU time.
template <typename Work>
double best_rate(const Work& work) {
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const double start = cpu_seconds();
    const auto done = static_cast<double>(work());
    best = std::max(best, done / (cpu_seconds() - start));
  }
  return best;
}

double read_roof(Isa isa) {
  static std::map<Isa, double> known;
  if (!known.contains(isa))
    known[isa] = best_rate([isa] {
      benchmark::DoNotOptimize(roof_read(pool(), isa));
      return pool().size();
    });
  return known[isa];
}

double dot_roof(Isa isa) {
  static std::map<Isa, double> known;
  const Isa beside = isa == Isa::amx ? Isa::avx512vnni : isa;
  if (!known.contains(beside)) known[beside] = best_rate([beside] { return roof_dot(1000000, beside); });
  return known[beside];
}

void run_kernel(benchmark::State& state, const matmul_kernels::KernelRow& kernel, WeightFormat format, Shape shape,
                int64_t rows) {
  const bool plain = info(format).plain();
  const auto all = weights(format, shape, rows <= 16 ? kPoolBytes : 1 << 24);
  const int32_t group = info(format).group == 0 ? 128 : info(format).group;
  const HugeMemory y(rows * shape.outputs * 4 + 64), x(rows * shape.inputs * 4 + 64 + (rows + 16) * shape.inputs * 2);
  const QuantizedRows quantized = place_quantized_rows(x.bytes().data(), rows, shape.inputs, group);
  const FloatRows floats{reinterpret_cast<const float*>(x.bytes().data()), rows, shape.inputs};
  const MatmulOutput out{reinterpret_cast<float*>(y.bytes().data()), shape.outputs};
  size_t i = 0;
  const auto run = [&] {
    const WeightView& w = all[i++ % all.size()];
    const BlockRange blocks{0, (w.outputs + 15) / 16};
    kernel.kernel(plain ? matmul_kernels::prepare(floats, w, blocks, out)
                        : matmul_kernels::prepare(quantized, w, blocks, out));
  };
  std::ranges::fill(x.bytes(), std::byte{0x11});  // as codes and as floats a number of ordinary size
  run();                                          // the pages of the result
  for (auto _ : state) run();
  const auto times = static_cast<double>(state.iterations());
  const auto bytes = static_cast<double>(weight_bytes(format, Layout::tiles, shape.outputs, shape.inputs).total());
  const auto ops = 2.0 * static_cast<double>(rows * shape.outputs * shape.inputs);
  const auto rate = [](double amount) { return benchmark::Counter(amount, benchmark::Counter::kIsRate); };
  state.counters["GB/s"] = rate(times * bytes * 1e-9);
  state.counters["TOPS"] = rate(times * ops * 1e-12);
  state.counters["read%"] = rate(100 * times * bytes / read_roof(kernel.isa));
  if (!plain) state.counters["dot%"] = rate(100 * times * ops / dot_roof(kernel.isa));
}

// The same weights in the layout `rows`.
void run_rows(benchmark::State& state, Isa isa, WeightFormat format, int64_t rows) {
  constexpr Shape kShape{4096, 4096};
  auto all = weights(format, kShape, rows <= 16 ? kPoolBytes : 1 << 24);
  for (WeightView& w : all) w.layout = Layout::rows;
  const HugeMemory y(rows * kShape.outputs * 4 + 64), x((rows + 16) * kShape.inputs * 2);
  const QuantizedRows quantized = place_quantized_rows(x.bytes().data(), rows, kShape.inputs, 128);
  std::ranges::fill(x.bytes(), std::byte{0x11});
  size_t i = 0;
  for (auto _ : state)
    matmul(quantized, all[i++ % all.size()], {0, kShape.outputs / 16},
           {reinterpret_cast<float*>(y.bytes().data()), kShape.outputs}, isa);
  const auto done = static_cast<double>(state.iterations()) *
                    static_cast<double>(weight_bytes(format, Layout::rows, kShape.outputs, kShape.inputs).total());
  state.counters["GB/s"] = benchmark::Counter(done * 1e-9, benchmark::Counter::kIsRate);
  state.counters["read%"] = benchmark::Counter(100 * done / read_roof(isa), benchmark::Counter::kIsRate);
}

void run_roof_read(benchmark::State& state, Isa isa) {
  for (auto _ : state) benchmark::DoNotOptimize(roof_read(pool(), isa));
  state.counters["GB/s"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(pool().size()) / 1e9, benchmark::Counter::kIsRate);
}

void run_roof_dot(benchmark::State& state, Isa isa) {
  int64_t ops = 0;
  for (auto _ : state) ops += roof_dot(100000, isa);
  state.counters["TOPS"] = benchmark::Counter(static_cast<double>(ops) * 1e-12, benchmark::Counter::kIsRate);
}

matmul_kernels::Codes codes_of(WeightFormat format) {
  using matmul_kernels::Codes;
  const FormatInfo& f = info(format);
  if (format == WeightFormat::f32) return Codes::f32;
  if (format == WeightFormat::f16) return Codes::f16;
  if (format == WeightFormat::bf16) return Codes::bf16;
  if (f.codebook != Codebook::integer) return Codes::levels;
  if (f.storage_bits == 2) return Codes::twos;
  return f.storage_bits == 8 ? Codes::bytes : Codes::nibbles;
}

// Every level by every format and number of rows, with the kernel that the level selects, where it is the level's own.
bool register_all() {
  using enum WeightFormat;
  for (const Isa isa : available_isas(cpu_features())) {
    benchmark::RegisterBenchmark(fmt::format("roof_read/{}", name(isa)).c_str(), run_roof_read, isa);
    benchmark::RegisterBenchmark(fmt::format("roof_dot/{}", name(isa)).c_str(), run_roof_dot, isa);
    for (const WeightFormat format : {q4g128, q4g64, q4g32, q4g32m, q5g32m, q8c, q8g128, q8g32, nf4c, iq4g32, f16, f32})
      for (const int64_t rows : {1, 2, 4, 8, 16, 64, 512}) {
        const auto& kernel = matmul_kernels::select_kernel(isa, codes_of(format), rows);
        if (kernel.isa != isa || (isa == Isa::generic && rows > 8)) continue;
        benchmark::RegisterBenchmark(
            fmt::format("{}/{}/{}/rows:{}", name(isa), name(format), kernel.name, rows).c_str(), run_kernel, kernel,
            format, Shape{4096, 4096}, rows)
            ->Unit(benchmark::kMillisecond);
      }
    for (const WeightFormat format : {q4g128, q8g128})
      for (const int64_t rows : {1, 16})
        benchmark::RegisterBenchmark(fmt::format("layout_rows/{}/{}/rows:{}", name(isa), name(format), rows).c_str(),
                                     run_rows, isa, format, rows)
            ->Unit(benchmark::kMillisecond);
  }
  return true;
}

const bool kRegistered = register_all();

}  // namespace
}  // namespace onw
