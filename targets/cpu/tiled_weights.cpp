#include "targets/cpu/tiled_weights.h"

#include <cstdlib>
#include <cstring>
#include <map>

#include "base/checked.h"
#include "quant/relayout.h"

namespace onw::cpu {
namespace {

// Codes of all weights of a group, then their scales, then their minima.
struct Storage {
  std::vector<std::shared_ptr<std::byte>> blocks;
  std::map<std::string, WeightView, std::less<>> views;
};

std::shared_ptr<std::byte> aligned(int64_t bytes) {
  return {
      static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(round_up(std::max<int64_t>(bytes, 64), 64)))),
      [](std::byte* p) { std::free(p); }};
}

Result<void> store_group(const std::vector<std::pair<std::string, WeightView>>& group, Storage& storage) {
  WeightBytes total;
  for (const auto& [name, w] : group) {
    const WeightBytes n = weight_bytes(w.format, Layout::tiles, w.outputs, w.inputs);
    total.codes += n.codes, total.scales += n.scales, total.minima += n.minima;
  }
  std::byte* parts[3];
  const int64_t bytes[3] = {total.codes, total.scales, total.minima};
  for (int i = 0; i < 3; ++i) {
    storage.blocks.push_back(aligned(bytes[i]));
    parts[i] = storage.blocks.back().get();
    if (parts[i] == nullptr) return error(Code::out_of_memory, "no memory for {} bytes of weights", bytes[i]);
  }
  for (const auto& [name, w] : group) {
    const WeightBytes n = weight_bytes(w.format, Layout::tiles, w.outputs, w.inputs);
    WeightParts out;
    const auto take = [](std::byte*& at, int64_t size) {
      const std::span<std::byte> span(at, static_cast<size_t>(size));
      at += size;
      return span;
    };
    out.codes = take(parts[0], n.codes);
    out.scales = take(parts[1], n.scales);
    out.minima = take(parts[2], n.minima);
    relayout(w, 0, output_blocks(w), out);
    WeightView tiled = w;
    tiled.layout = Layout::tiles;
    tiled.codes = out.codes, tiled.scales = out.scales, tiled.minima = out.minima;
    storage.views.emplace(name, tiled);
  }
  return {};
}

// Experts, each in a record of its own.
Result<void> store_stack(const std::string& name, const WeightView& stack, Storage& storage) {
  const WeightBytes n = weight_bytes(stack.format, Layout::tiles, stack.outputs, stack.inputs);
  const int64_t scales = round_up(n.codes, 64), minima = scales + round_up(n.scales, 64);
  WeightView tiled = stack;
  tiled.layout = Layout::tiles;
  tiled.expert_stride = minima + round_up(n.minima, 64);
  storage.blocks.push_back(aligned(tiled.expert_stride * stack.experts));
  std::byte* const memory = storage.blocks.back().get();
  if (memory == nullptr)
    return error(Code::out_of_memory, "no memory for {} bytes of weights", tiled.expert_stride * stack.experts);
  const auto parts = [&](int64_t e) {
    std::byte* const record = memory + e * tiled.expert_stride;
    const auto part = [record](int64_t at, int64_t bytes) {
      return std::span<std::byte>(record + at, static_cast<size_t>(bytes));
    };
    return WeightParts{part(0, n.codes), part(scales, n.scales), part(minima, n.minima)};
  };
  for (int64_t e = 0; e < stack.experts; ++e) relayout(stack.expert(e), 0, output_blocks(stack), parts(e));
  const WeightParts first = parts(0);
  tiled.codes = first.codes, tiled.scales = first.scales, tiled.minima = first.minima;
  storage.views.emplace(name, tiled);
  return {};
}

}  // namespace

Result<WeightSet> tiled_in_memory(const Program& program, WeightSet weights) {
  auto storage = std::make_shared<Storage>();
  std::map<std::string, std::vector<std::pair<std::string, WeightView>>> groups;
  for (const WeightDecl& decl : program.weights) {
    const auto w = weights.find(decl.name);
    RETURN_IF_ERROR(w);
    if (decl.role == WeightRole::vector || decl.role == WeightRole::lookup || w->layout == Layout::tiles) continue;
    if (decl.role == WeightRole::expert) {
      if (decl.shape.size() == 3) RETURN_IF_ERROR(store_stack(decl.name, *w, *storage));
      continue;
    }
    const std::string key = decl.group.empty() ? decl.name : fmt::format("{} {}", decl.group, name(w->format));
    groups[key].emplace_back(decl.name, *w);
  }
  for (const auto& [key, group] : groups) RETURN_IF_ERROR(store_group(group, *storage));
  const auto owner =
      std::make_shared<std::pair<std::shared_ptr<Storage>, std::shared_ptr<const void>>>(storage, weights.owner);
  return WeightSet{[storage, find = weights.find](std::string_view name) -> Result<WeightView> {
                     if (const auto found = storage->views.find(name); found != storage->views.end())
                       return found->second;
                     return find(name);
                   },
                   owner};
}

bool adjacent(const WeightSet& weights, const std::vector<std::string>& names) {
  WeightView before;
  for (const std::string& name : names) {
    const auto w = weights.find(name);
    if (!w || w->layout != Layout::tiles) return false;
    if (name != names.front()) {
      for (const auto part : {&WeightView::codes, &WeightView::scales, &WeightView::minima})
        if (!(before.*part).empty() && (before.*part).data() + (before.*part).size() != ((*w).*part).data())
          return false;
    }
    before = *w;
  }
  return true;
}

Result<WeightView> find_weight(const Program& program, const WeightSet& weights, std::string_view name) {
  const WeightDecl* decl = program.weight(name);
  CHECK(decl != nullptr);
  if (decl->parts.empty()) return weights.find(name);
  auto merged = weights.find(decl->parts.front());
  RETURN_IF_ERROR(merged);
  const auto last = weights.find(decl->parts.back());
  RETURN_IF_ERROR(last);
  merged->outputs = decl->shape[0];
  for (const auto part : {&WeightView::codes, &WeightView::scales, &WeightView::minima}) {
    auto& span = (*merged).*part;
    const auto& end = (*last).*part;
    if (!span.empty()) span = {span.data(), end.data() + end.size()};
  }
  return merged;
}

}  // namespace onw::cpu
