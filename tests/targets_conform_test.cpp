// The promises of targets/executable.h, held by the reference and the CPU on tiny models: full attention, windows as
// rings, INT8 and F16.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "passes/quantise.h"
#include "runtime/testing/hand_over_pair.h"
#include "targets/conformance.h"
#include "targets/cpu/cpu.h"
#include "targets/cpu/tiled_weights.h"
#include "targets/reference/reference.h"
#include "tests/random_model.h"

namespace onw::testing {
namespace {

RandomModel model(std::string_view family, int64_t hidden, int64_t window = 0) {
  nlohmann::json config = tiny_config(family, hidden);
  if (family != "gemma4") config["num_hidden_layers"] = 2;
  if (window > 0) config.update({{"sliding_window", window}, {"sliding_window_pattern", 2}});
  return random_model(config, [](const WeightDecl&) { return WeightFormat::q4g128; });
}

ConformanceSubject reference_of(std::string name, RandomModel m, std::string kv) {
  return {
      .name = std::move(name),
      .make =
          [m, kv] {
            return std::move(*make_reference(quantise_activations(m.program, kv), m.weights, {.max_step_rows = 64}));
          },
      .tokens = 40};
}

ConformanceSubject cpu_of(std::string name, RandomModel m, KvFormat kv) {
  const WeightSet tiled = *cpu::tiled_in_memory(m.program, m.weights);
  return {.name = std::move(name), .make = [m, tiled, kv] {
            return std::move(
                *make_cpu(m.program, tiled,
                          {.kv = kv, .isa = available_isas(cpu_features()).back(), .threads = 2, .max_step_rows = 64}));
          }};
}

// A conversation that moves between two targets at every point.
ConformanceSubject moving(std::string name, const ConformanceSubject& standby, const ConformanceSubject& device,
                          int64_t tokens = 300) {
  return {.name = std::move(name),
          .make = [standby, device] { return restless(standby.make, device.make); },
          .tokens = std::min({tokens, standby.tokens, device.tokens})};
}

[[maybe_unused]] const bool kRegistered[] = {
    register_conformance(reference_of("ReferenceConformance_llama", model("llama", 48), "f32")),
    register_conformance(reference_of("ReferenceConformance_gemma3", model("gemma3", 320, 5), "int8")),
    register_conformance(cpu_of("CpuConformance_llama", model("llama", 512), KvFormat::int8)),
    register_conformance(cpu_of("CpuConformance_one_kv_head", model("qwen3", 320), KvFormat::int8)),
    register_conformance(cpu_of("CpuConformance_f16", model("qwen2", 320), KvFormat::f16)),
    register_conformance(cpu_of("CpuConformance_window", model("gemma3", 320, 20), KvFormat::int8)),
    register_conformance(cpu_of("CpuConformance_shared_caches", model("gemma4", 320, 20), KvFormat::int8)),
    register_conformance(cpu_of("CpuConformance_window_over_pages", model("gemma3", 512, 270), KvFormat::int8)),
    register_conformance(reference_of("ReferenceConformance_qwen3_5", model("qwen3_5", 48), "int8")),
    register_conformance(cpu_of("CpuConformance_qwen3_5", model("qwen3_5", 320), KvFormat::f16)),
    register_conformance(moving("HandOverConformance_delta_cpu_and_reference",
                                cpu_of("", model("qwen3_5", 48), KvFormat::int8),
                                reference_of("", model("qwen3_5", 48), "int8"), 24)),
    register_conformance(moving("HandOverConformance_cpu_and_cpu", cpu_of("", model("llama", 320), KvFormat::int8),
                                cpu_of("", model("llama", 320), KvFormat::int8))),
    register_conformance(moving("HandOverConformance_window", cpu_of("", model("gemma3", 320, 20), KvFormat::int8),
                                cpu_of("", model("gemma3", 320, 20), KvFormat::int8))),
    register_conformance(moving("HandOverConformance_cpu_and_reference", cpu_of("", model("llama", 48), KvFormat::int8),
                                reference_of("", model("llama", 48), "int8"), 24)),
};

}  // namespace
}  // namespace onw::testing
