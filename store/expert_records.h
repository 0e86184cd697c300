// The experts of a layer on disk: one tensor [experts, record_bytes], a record holding all that one expert is, so that
// one read brings it. A record begins at a multiple of 4,096. In it lie the codes of the matrices from 0 on, then their
// scales, then their minima, then the vectors (biases), each part at a multiple of 64.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/weight_plan.h"

namespace onw {

inline constexpr int64_t kRecordAlignment = 4096;

struct PartOffsets {
  int64_t codes = 0, scales = 0, minima = 0;  // in the record; 0 where the part has no such bytes
  bool operator==(const PartOffsets&) const = default;
};

struct ExpertRecords {
  std::string name;  // "layers.3.experts"
  int64_t experts = 0;
  std::vector<StoredWeight> parts;  // of one expert: "layers.3.experts.gate" [out, in], its bias [n]

  // The place of each part, and the bytes of a record.
  std::vector<PartOffsets> offsets() const;
  int64_t record_bytes() const;

  // The tensor in the file.
  StoredWeight stored() const;

  // Part `part` of all experts; `records` are the tensor's bytes.
  WeightView view(size_t part, std::span<const std::byte> records) const;

  bool operator==(const ExpertRecords&) const = default;
};

}  // namespace onw
