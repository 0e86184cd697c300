// Where every byte of a weights file will lie, known before the first is written.
//
// A weight is one tensor `<name>` (plain formats) or `<name>.codes`, `<name>.scales`, `<name>.minima`. The weights of a
// unit lie side by side: all their codes, then all their scales, then all their minima, so that q, k and v read as one.
// Data begins at a multiple of 4,096, each tensor at a multiple of 64; gaps are tensors `pad.N`, because the format
// allows no holes. The last tensor, `complete`, is the footer that a finished file ends with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/weight_view.h"

namespace onw {

struct StoredWeight {
  std::string name;
  WeightFormat format = WeightFormat::f32;
  Layout layout = Layout::rows;
  std::vector<int64_t> shape;    // [out, in], or [n]
  int64_t record_bytes = 0;      // of experts' records (store/expert_records.h): U8 [n, record_bytes]; 0: a weight
  std::string record_form = {};  // of them: format and layout of each part

  int64_t outputs() const { return shape.empty() ? 1 : shape.front(); }
  int64_t inputs() const;  // 1 for vectors
  WeightBytes bytes() const {
    if (record_bytes > 0) return {.codes = outputs() * record_bytes};
    return weight_bytes(format, layout, outputs(), inputs());
  }
  bool operator==(const StoredWeight&) const = default;
};

struct WeightUnit {
  std::vector<StoredWeight> weights;
};

inline constexpr int64_t kFooterBytes = 64;
inline constexpr std::string_view kFooterName = "complete";

// One run of bytes in the file: a part of a weight, a pad or the footer.
struct PlannedTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // in the file
  int64_t end = 0;
  int unit = -1;  // -1: a pad or the footer
};

struct WeightFilePlan {
  std::string header;                  // the length and the JSON, as in the file
  std::vector<PlannedTensor> tensors;  // in the file's order
  int64_t file_bytes = 0;
};

WeightFilePlan plan_weight_file(std::span<const WeightUnit> units);

// What the footer of a file of that length with that header holds: a magic, the length, the header's SHA-256.
std::string footer_of(std::string_view header, int64_t file_bytes);

// Dtype and shape of the codes of a weight (of the values of a plain one), and of its scales and minima.
struct TensorForm {
  std::string dtype;
  std::vector<int64_t> shape;
};
// "q4c tiles": what the bytes of a weight are. It stands in the file's header, so that an engine.json of other weights,
// whose shapes may be the same, is noticed.
std::string form_of(const StoredWeight& weight);

TensorForm codes_form(const StoredWeight& weight);
TensorForm scales_form(const StoredWeight& weight);

}  // namespace onw
