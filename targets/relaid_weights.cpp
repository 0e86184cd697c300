#include "targets/relaid_weights.h"

#include <algorithm>

#include "quant/relayout.h"

namespace onw {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;

// The matrices that are in the other layout, in the file's order: neighbours stay neighbours.
Result<std::vector<StoredWeight>> weights_to_relay(const ModelFolder& folder, const Program& program, Layout layout) {
  const bool has_head =
      std::ranges::any_of(program.weights, [](const WeightDecl& w) { return w.role == WeightRole::head; });
  std::vector<std::pair<const std::byte*, StoredWeight>> found;
  for (const WeightDecl& w : program.weights) {
    // Experts stay as they are: what reads them takes either layout.
    if (w.role == WeightRole::vector || w.role == WeightRole::expert || w.role == WeightRole::lookup) continue;
    if (w.role == WeightRole::embedding && has_head) continue;
    const auto view = folder.weight(w.name);
    RETURN_IF_ERROR(view);
    if (view->layout != layout) found.emplace_back(view->codes.data(), folder.weights().weights().find(w.name)->second);
  }
  std::ranges::sort(found, {}, &std::pair<const std::byte*, StoredWeight>::first);
  std::vector<StoredWeight> ordered;
  for (auto& [at, weight] : found) ordered.push_back(std::move(weight));
  return ordered;
}

std::vector<WeightUnit> units_of(const ModelFolder& folder, const std::vector<StoredWeight>& weights, Layout layout) {
  std::vector<WeightUnit> units;
  for (StoredWeight w : weights) {
    w.layout = layout;
    const std::string pair[] = {units.empty() ? "" : units.back().weights.back().name, w.name};
    if (units.empty() || !folder.weights().adjacent(pair)) units.emplace_back();
    units.back().weights.push_back(std::move(w));
  }
  return units;
}

// Writes one weight in its other layout, some blocks of 16 outputs at a time.
Result<void> relay(const WeightView& weight, Layout layout, size_t index, WeightFileWriter& out,
                   const std::function<bool(int64_t bytes)>& after_piece) {
  const int64_t blocks = output_blocks(weight);
  const int64_t step =
      std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, block_bytes(weight, layout, 0, 1).total()));
  for (int64_t first = 0; first < blocks; first += step) {
    const int64_t last = std::min(blocks, first + step);
    const WeightBytes bytes = block_bytes(weight, layout, first, last);
    std::vector<std::byte> codes(bytes.codes), scales(bytes.scales), minima(bytes.minima);
    relayout(weight, first, last, {codes, scales, minima});
    RETURN_IF_ERROR(out.append(index, {codes, scales, minima}));
    if (!after_piece(bytes.total())) return error(Code::cancelled, "stopped; the next start goes on from here");
  }
  return {};
}

Result<void> relay_all(const ModelFolder& folder, const std::vector<WeightUnit>& units, WeightFileWriter& out,
                       const RelayObserver& observer) {
  int64_t done = 0;
  const auto after_piece = [&](int64_t bytes) { return !observer || observer(done += bytes, out.plan().file_bytes); };
  for (size_t u = out.next_unit(); u < units.size(); ++u) {
    for (size_t i = 0; i < units[u].weights.size(); ++i) {
      const auto view = folder.weight(units[u].weights[i].name);
      RETURN_IF_ERROR(view);
      RETURN_IF_ERROR(relay(*view, units[u].weights[i].layout, i, out, after_piece));
    }
    RETURN_IF_ERROR(out.finish_unit());
  }
  return {};
}

struct Owner {
  std::shared_ptr<const ModelFolder> folder;
  WeightFile relaid;
};

}  // namespace

Result<WeightSet> weights_in_layout(std::shared_ptr<const ModelFolder> folder, const Program& program, Layout layout,
                                    const CacheStore& cache, const RelayObserver& observer) {
  const auto weights = weights_to_relay(*folder, program, layout);
  RETURN_IF_ERROR(weights);
  const auto owner = std::make_shared<Owner>(Owner{std::move(folder), {}});
  if (!weights->empty()) {
    const auto digest = owner->folder->digest();
    RETURN_IF_ERROR(digest);
    const auto where = std::filesystem::weakly_canonical(owner->folder->path());
    CacheRequest request{.model = where.filename().string(), .model_folder = where, .digest = *digest};
    request.units = units_of(*owner->folder, *weights, layout);
    request.fill = [&](WeightFileWriter& out) { return relay_all(*owner->folder, request.units, out, observer); };
    auto relaid = cache.weights(request);
    RETURN_IF_ERROR(relaid);
    owner->relaid = std::move(*relaid);
  }
  const Owner* held = owner.get();
  std::vector<MappedWeights> files = {{held->folder->weights().path(), held->folder->weights().data()}};
  if (held->relaid.bytes() > 0) files.push_back({held->relaid.path(), held->relaid.data()});
  std::vector<MappedWeights> expert_files;
  if (const WeightFile& experts = held->folder->experts(); experts.bytes() > 0)
    expert_files.push_back({experts.path(), experts.data()});
  return WeightSet{[held](std::string_view name) -> Result<WeightView> {
                     return held->relaid.has(name) ? held->relaid.weight(name) : held->folder->weight(name);
                   },
                   owner, std::move(files), std::move(expert_files)};
}

}  // namespace onw
