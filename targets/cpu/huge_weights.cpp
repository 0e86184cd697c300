#include "targets/cpu/huge_weights.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/huge_files.h"
#include "base/huge_memory.h"
#include "base/memory.h"
#include "base/thread_affinity.h"

namespace onw::cpu {
namespace {

constexpr int64_t kSpareMemory = 1 << 30;  // that other programs keep

// Below this share of huge pages moving is worth it.
constexpr double kEnough = 0.9;

constexpr size_t kSmallPage = 4096;

// The mapping that `bytes` lie in; empty where they are in memory.
std::span<const std::byte> mapping_of(const WeightSet& weights, std::span<const std::byte> bytes) {
  for (const auto& [path, all] : weights.files)
    if (all.data() <= bytes.data() && bytes.data() + bytes.size() <= all.data() + all.size()) return all;
  return {};
}

template <class Wanted>
std::vector<HugePart> spans_of(const Program& program, const WeightSet& weights, const Wanted& wanted) {
  std::vector<HugePart> all;
  for (const WeightDecl& w : program.weights) {
    if (!w.parts.empty() || !wanted(w)) continue;
    const auto view = weights.find(w.name);
    if (!view) continue;
    const auto others = static_cast<size_t>(std::max<int64_t>(view->experts - 1, 0) * view->expert_stride);
    for (const auto& first : {view->codes, view->scales, view->minima}) {
      const std::span bytes(first.data(), first.empty() ? 0 : first.size() + others);
      if (const auto mapping = mapping_of(weights, bytes); !mapping.empty() && !bytes.empty())
        all.push_back({mapping, bytes});
    }
  }
  std::ranges::sort(all, {}, [](const HugePart& p) { return p.bytes.data(); });
  return all;
}

int64_t total_bytes(std::span<const HugePart> parts) {
  int64_t bytes = 0;
  for (const HugePart& part : parts) bytes += static_cast<int64_t>(part.bytes.size());
  return bytes;
}

// Maps every page, as the first step would.
void touch(std::span<const HugePart> parts, const std::stop_token& stop) {
  volatile int read = 0;
  for (const HugePart& part : parts) {
    if (stop.stop_requested()) return;
    for (size_t at = 0; at < part.bytes.size(); at += kSmallPage) read = read + static_cast<int>(part.bytes[at]);
  }
}

// Of the touched parts; 1 where the system does not say.
double share_in_huge_pages(std::span<const HugePart> parts) {
  int64_t huge = 0;
  const std::byte* before = nullptr;
  for (const HugePart& part : parts) {
    if (part.mapping.data() == std::exchange(before, part.mapping.data())) continue;  // its parts follow each other
    const auto found = huge_page_bytes(part.mapping);
    if (!found) return 1;
    huge += found->file;
  }
  return static_cast<double>(huge) / static_cast<double>(total_bytes(parts));
}

void move_to_huge_pages(std::span<const HugePart> parts, const std::stop_token& stop) {
  int64_t left = total_bytes(parts);
  for (const HugePart& part : parts) {
    if (stop.stop_requested() || available_memory_bytes() < left + kSpareMemory) return;
    if (!replace_by_huge_pages(part.bytes)) return;
    left -= static_cast<int64_t>(part.bytes.size());
  }
}

// Whole huge pages around the spans, which are in order.
std::vector<HugePart> in_pieces(std::span<const HugePart> spans, size_t piece) {
  CHECK(piece > 0 && piece % kHugePageBytes == 0);
  std::vector<HugePart> parts;
  for (const auto& [mapping, bytes] : spans) {
    const std::byte* mapped_end = mapping.data() + mapping.size();
    const std::byte* begin = bytes.data() - reinterpret_cast<uintptr_t>(bytes.data()) % kHugePageBytes;
    if (begin < mapping.data()) begin += kHugePageBytes;
    if (!parts.empty()) begin = std::max(begin, parts.back().bytes.data() + parts.back().bytes.size());
    for (; begin < bytes.data() + bytes.size() && begin + kHugePageBytes <= mapped_end; begin += kHugePageBytes) {
      HugePart* last = parts.empty() ? nullptr : &parts.back();
      const bool goes_on = last != nullptr && last->mapping.data() == mapping.data() && last->bytes.size() < piece &&
                           last->bytes.data() + last->bytes.size() == begin;
      if (goes_on)
        last->bytes = {last->bytes.data(), last->bytes.size() + kHugePageBytes};
      else
        parts.push_back({mapping, {begin, kHugePageBytes}});
    }
  }
  return parts;
}

// Experts that are not in the page cache yet are read from the disk, ahead of their first use.
void touch_experts(std::span<const HugePart> parts, const std::stop_token& stop) {
  int64_t left = total_bytes(parts);
  for (const HugePart& part : parts) {
    if (stop.stop_requested() || available_memory_bytes() < left + kSpareMemory) return;
    touch({&part, 1}, stop);
    left -= static_cast<int64_t>(part.bytes.size());
  }
}

}  // namespace

std::vector<HugePart> parts_for_huge_pages(const Program& program, const WeightSet& weights, size_t piece) {
  const bool has_head =
      std::ranges::any_of(program.weights, [](const WeightDecl& w) { return w.role == WeightRole::head; });
  return in_pieces(spans_of(program, weights,
                            [has_head](const WeightDecl& w) {
                              const bool looked_up_only =
                                  w.role == WeightRole::lookup || (w.role == WeightRole::embedding && has_head);
                              return !looked_up_only && w.role != WeightRole::expert;
                            }),
                   piece);
}

std::vector<HugePart> expert_parts(const Program& program, const WeightSet& weights, size_t piece) {
  return in_pieces(spans_of(program, weights, [](const WeightDecl& w) { return w.role == WeightRole::expert; }), piece);
}

HugeWeights::HugeWeights(std::vector<HugePart> parts, std::vector<HugePart> experts) {
  if (parts.empty() && experts.empty()) return;
  moving_ = true;
  thread_ = std::jthread([this, parts = std::move(parts), experts = std::move(experts)](const std::stop_token& stop) {
    yield_to_others();  // a tenth of a processor: with less, it would take longer than the answers that it helps
    touch(parts, stop);
    if (!parts.empty() && share_in_huge_pages(parts) < kEnough) move_to_huge_pages(parts, stop);
    touch_experts(experts, stop);
    moving_ = false;
  });
}

}  // namespace onw::cpu
