// Weights in huge pages where files are in small ones: from small pages alone a model of 1 G decodes at 61 % of the
// read bandwidth, while and after it is moved at 73 % (medians of five rounds in turns; busy Xeon, 2026-11).
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <thread>
#include <vector>

#include "graph/program.h"
#include "targets/weights.h"

namespace onw::cpu {

// Whole huge pages of a file's mapping that hold weights.
struct HugePart {
  std::span<const std::byte> mapping;
  std::span<const std::byte> bytes;
};

// What every step reads of mapped weights, in the order of the Program: pieces of at most `piece` bytes. A table of
// which the host looks up single rows is left out.
std::vector<HugePart> parts_for_huge_pages(const Program& program, const WeightSet& weights, size_t piece);

// What a step reads a few of, and no step wholly: mapped experts, in the order of the files.
std::vector<HugePart> expert_parts(const Program& program, const WeightSet& weights, size_t piece);

// A thread that moves the parts to anonymous huge pages, piece by piece, where their file lies in small pages (its file
// system has no others, or whoever wrote or read it last used them) and memory suffices. Answers go on meanwhile, and
// no bit changes. The file's own pages are left for the next start, or for the system to reclaim. Experts stay where
// they are and are only touched, where memory suffices: a token that is the first to use some would wait for their
// pages (the first ten tokens of 128 experts took half as long again; Xeon, 2026-11). The parts outlive it.
class HugeWeights {
 public:
  HugeWeights(std::vector<HugePart> parts, std::vector<HugePart> experts);

  // Whether the thread still looks or moves: steps take longer meanwhile.
  bool moving() const { return moving_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> moving_ = false;
  std::jthread thread_;
};

}  // namespace onw::cpu
