#include "targets/openvino/platforms.h"

#include <algorithm>
#include <numeric>

namespace onw::openvino {
namespace {

using Property = std::pair<std::string_view, std::string_view>;

constexpr Property kLatency[] = {{"PERFORMANCE_HINT", "LATENCY"}};
constexpr Property kFp32[] = {{"INFERENCE_PRECISION_HINT", "f32"}, {"PERFORMANCE_HINT", "LATENCY"}};

constexpr KnownLimit kOf3720[] = {
    {"its compiler expands INT4 weights to F16 behind NPUW", "NPUW is not used"},
    {"weights are not shared between numbers of rows", "two numbers of rows at most"},
    {"NPUW_FOLD gives wrong numbers for Gemma", "NPUW is not used"},
    {"multiplying attention's weights with values of more than 256 columns is wrong", "values are split at 256"},
};
constexpr KnownLimit kOf4000[] = {
    {"tensors [1, heads, 4, 4] do not compile", "no graph has them"},
    {"NPU_TILES=1 crashes the compiler", "the number of tiles is left alone"},
    {"NPUW_SLICE_OUT is wrong for several rows", "the head is a graph of its own"},
    {"more than some 40 requests in one process end the device until the next boot, on Linux", "requests are counted"},
    {"multiplying attention's weights with values of more than 256 columns is wrong", "values are split at 256"},
};
constexpr KnownLimit kOf5010[] = {
    {"exactly 64 rows with NPUW_DQ_FULL=YES are wrong", "NPUW is not used; with it, NPUW_DQ_FULL=NO"},
    {"more than some 40 requests in one process end the device until the next boot, on Linux", "requests are counted"},
    {"multiplying attention's weights with values of more than 256 columns is wrong", "values are split at 256"},
};
constexpr KnownLimit kOfCpu[] = {
    {"each compiled graph packs its weights anew", "one graph takes any number of rows"},
    {"INT8 keys and values are widened at each run", "keys and values are F16, and the host attends"},
    {"weights as inputs of a graph are expanded to F32 at each run",
     "weights are constants, and the host computes experts"},
};

constexpr int64_t kNpuWork = 600'000'000;  // measured on 3720 to 5010 for models of 8 to 35 B
constexpr int kLinuxRequests = 32, kLinuxAttention = 6, kLinuxExperts = 8;
// Two lengths (a conversation's, and the next), for two numbers of rows, of two graphs each: a body of up to twice
// kFusedGraph keeps all of them loaded, a larger one fewer.
constexpr int kLinuxFused = 2 * 2 * 2;

// What compiling a graph takes beside the compiler itself, in bytes for a byte of its constants: 1b (q4g128), its body
// of 0.51 GB over the first 1024 positions, through the NPU's plugin with the CPU device behind it: 1.78 GB of its own
// and 2.34 GB with the mapped weights, 0.3 GB of that the library (OpenVINO 2026.4, 2026-11). Loaded it then takes 1.1
// to 1.3 GB, as much as the segments of a number of rows do there. Of an NPU's compiler only its own 2.5 GB are known.
constexpr double kCompileCopies = 3.5;
// So a graph compiles in 8 GB, half of what the smaller PCs with an NPU have. It is no matter of the memory that
// happens to be free: in how many graphs a body is cut is part of their keys, and other cuts would be compiled anew.
constexpr double kCompileMemory = 8e9, kNpuCompiler = 2.5e9;
constexpr auto kFusedGraph = static_cast<int64_t>((kCompileMemory - kNpuCompiler) / kCompileCopies);  // 1.57 GB

// The generations of NPUs differ in what they cannot do, and in the formats that they take.
constexpr Platform npu(std::string_view name, std::span<const KnownLimit> limits) {
  return {.name = name,
          .openvino = "NPU",
          .formats = name,
          .prompt_rows = {64, 16},
          .requests = kLinuxRequests,
          .attention_requests = kLinuxAttention,
          .expert_requests = kLinuxExperts,
          .work_bytes = kNpuWork,
          .fuses = true,
          .fused_requests = kLinuxFused,
          .fused_graph_bytes = kFusedGraph,
          .properties = kLatency,
          .limits = limits};
}

constexpr Platform kPlatforms[] = {
    npu("3720", kOf3720),
    npu("4000", kOf4000),
    npu("5010", kOf5010),
    {.name = "GPU",
     .openvino = "GPU",
     .formats = "openvino:CPU",
     .prompt_rows = {64, 16},
     .attention_requests = 64,
     .work_bytes = 100'000'000,
     .fused_requests = kLinuxFused,
     .kv = KvFormat::f16,
     .properties = kLatency},
    {.name = "openvino:CPU",
     .openvino = "CPU",
     .formats = "openvino:CPU",
     .dynamic_rows = true,
     .kv = KvFormat::f16,
     .properties = kFp32,
     .limits = kOfCpu},
};

}  // namespace

std::span<const Platform> all_platforms() { return kPlatforms; }

const Platform* find_platform(std::string_view name) {
  const auto found = std::ranges::find(kPlatforms, name, &Platform::name);
  return found == std::end(kPlatforms) ? nullptr : &*found;
}

const Platform& npu_platform(std::string_view architecture, std::string_view machine) {
  const Platform* newest = nullptr;
  for (const Platform& p : kPlatforms) {
    if (p.openvino != "NPU") continue;
    if (architecture.find(p.name) != std::string_view::npos || machine.find(p.name) != std::string_view::npos) return p;
    newest = &p;
  }
  return *newest;
}

Properties properties_of(const Platform& platform) {
  Properties all;
  for (const auto& [name, value] : platform.properties) all.emplace_back(name, value);
  return all;
}

bool ResidentPlan::all_resident() const {
  return std::ranges::all_of(resident_graphs, [this](int n) { return n == graphs; });
}

// Beside those that keep one, one is made for a run at a time.
int ResidentPlan::requests() const {
  return std::accumulate(resident_graphs.begin(), resident_graphs.end(), attention_requests + expert_requests) +
         (all_resident() ? 0 : 1) + fused_variants * fused_graphs;
}

namespace {

int64_t bytes_of(const Platform& p, const ModelShape& m, size_t blocks) {
  const auto n = static_cast<int64_t>(blocks);
  return m.weight_bytes * (p.copies_weights ? n : 1) + p.work_bytes * n;
}

// The largest block for prompts beside decoding that memory allows; decoding alone where none does.
std::vector<int64_t> blocks_that_fit(const Platform& p, const ModelShape& m) {
  const auto fits = [&](size_t blocks) { return m.memory_bytes == 0 || bytes_of(p, m, blocks) <= m.memory_bytes; };
  if (fits(2)) return {p.decode_rows, p.prompt_rows.front()};
  // One number of rows for both: the smaller prompt block costs a device that reads weights little more than one row.
  if (fits(1)) return {p.prompt_rows.back()};
  return {};
}

int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// At most two lengths of each number of rows at a time: that of a conversation, and the next one.
void plan_fused(const Platform& p, const ModelShape& m, ResidentPlan& plan) {
  if (!m.fused.value_or(p.fuses) || p.fused_requests == 0 || m.attentions == 0) return;
  const int64_t graphs = p.fused_graph_bytes == 0 ? 1 : quotient_up(m.weight_bytes, p.fused_graph_bytes);
  const int64_t layers = quotient_up(m.attentions, std::clamp<int64_t>(graphs, 1, m.attentions));
  plan.fused_layers = static_cast<int>(layers);
  plan.fused_graphs = static_cast<int>(quotient_up(m.attentions, layers));
  int64_t most =
      std::min<int64_t>(p.fused_requests / plan.fused_graphs, 2 * static_cast<int64_t>(plan.block_rows.size()));
  const int64_t one = m.weight_bytes + p.work_bytes;
  if (m.memory_bytes > 0) most = std::min(most, (m.memory_bytes - plan.bytes) / 2 / std::max<int64_t>(one, 1));
  plan.fused_variants = static_cast<int>(most);
  plan.bytes += most * one;
}

}  // namespace

Result<ResidentPlan> plan_resident(const Platform& p, const ModelShape& m) {
  ResidentPlan plan;
  plan.graphs = m.segments + 1;
  if (p.dynamic_rows) return plan;
  plan.block_rows = blocks_that_fit(p, m);
  if (plan.block_rows.empty())
    return error(Code::out_of_memory,
                 "the graphs for {} need {:.2f} GB for weights and work, {:.2f} GB are available: free memory, take a "
                 "smaller model or format, or --device CPU",
                 p.name, static_cast<double>(bytes_of(p, m, 1)) / 1e9, static_cast<double>(m.memory_bytes) / 1e9);
  plan.bytes = bytes_of(p, m, plan.block_rows.size());
  plan.resident_graphs.assign(plan.block_rows.size(), plan.graphs);
  plan_fused(p, m, plan);
  if (m.experts > 0) plan.expert_requests = p.expert_requests;
  if (p.requests == 0) {
    plan.attention_requests = p.attention_requests;
    return plan;
  }
  const int requests = p.requests - plan.fused_variants * plan.fused_graphs - plan.expert_requests;
  // Attention gets what it could use of the rest, where all graphs fit; its least share otherwise.
  const int wanted = plan.graphs * static_cast<int>(plan.block_rows.size());
  const int most_attention = std::max(m.attentions * static_cast<int>(plan.block_rows.size()), 1);
  if (wanted + std::min(p.attention_requests, most_attention) <= requests) {
    plan.attention_requests = std::min(requests - wanted, std::max(most_attention, p.attention_requests));
    return plan;
  }
  plan.attention_requests = std::min(p.attention_requests, most_attention);
  int left = requests - plan.attention_requests - 1;  // one for the graphs that make theirs anew
  for (int& resident : plan.resident_graphs) {
    resident = std::min(plan.graphs, left);
    left -= resident;
  }
  return plan;
}

}  // namespace onw::openvino
