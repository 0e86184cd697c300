// What drawing one token costs, beside the step that made its logits.
#include <benchmark/benchmark.h>

#include "runtime/philox.h"
#include "runtime/sampler.h"

namespace onw {
namespace {

// Logits as models make them: a bell curve, by the sum of four uniforms, three wide.
std::vector<float> some_logits(int64_t vocabulary) {
  std::vector<float> logits;
  for (int64_t i = 0; i < vocabulary; ++i) {
    double sum = -2;
    for (uint32_t k = 0; k < 4; ++k) sum += uniform_draw(1, k, static_cast<uint64_t>(i));
    logits.push_back(static_cast<float>(5 * sum));
  }
  return logits;
}

void draw(benchmark::State& state, const SamplingParams& params, int logprobs) {
  const auto logits = some_logits(state.range(0));
  Sampler sampler(params, 1, 0);
  int64_t position = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sampler.draw(logits, position++, nullptr, logprobs));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}

BENCHMARK_CAPTURE(draw, greedy, SamplingParams{.temperature = 0}, -1)->Arg(49152)->Arg(151936);
BENCHMARK_CAPTURE(draw, temperature, SamplingParams{.temperature = 0.7F}, -1)->Arg(49152)->Arg(151936);
BENCHMARK_CAPTURE(draw, top_p, SamplingParams{.temperature = 0.7F, .top_p = 0.95F}, -1)->Arg(49152)->Arg(151936);
BENCHMARK_CAPTURE(draw, top_k, SamplingParams{.temperature = 0.7F, .top_k = 40}, -1)->Arg(49152)->Arg(151936);
BENCHMARK_CAPTURE(draw, logprobs, SamplingParams{.temperature = 0}, 5)->Arg(49152)->Arg(151936);

}  // namespace
}  // namespace onw
