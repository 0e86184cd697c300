// Which format and layout each weight gets.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "convert/block_type.h"
#include "graph/program.h"
#include "graph/weight_format.h"

namespace onw {

struct FormatRequest {
  std::string made_for = "cpu";        // cpu or npu
  std::optional<WeightFormat> format;  // --format; empty: taken over from a quantised source, else q4g128
  bool tied = false;                   // the embedding is the head
};

// An NPU takes FP16 subnormals for 0: a row of the head whose scale is one would give the logit 0, above most others.
inline constexpr float kLeastHeadScale = 0x1p-14f;

struct FormatChoice {
  WeightFormat format = WeightFormat::f32;
  Layout layout = Layout::rows;
  bool take_over = false;  // the codes of the source as they are
  float least_scale = 0;   // scales below it are raised to it (quant/quantise.h)
  std::string why;         // where the choice is not what was asked for; else empty
};

// `source_type` is how the published tensor is stored, `source_quantised` whether the file is one whose formats are
// taken over.
FormatChoice choose_format(const WeightDecl& weight, BlockType source_type, bool source_quantised,
                           const FormatRequest& request);

// Errors: usage, listing the formats that can be asked for.
Result<WeightFormat> parse_format_option(std::string_view name);
// Errors: usage.
Result<std::string> parse_device_class(std::string_view name);

}  // namespace onw
