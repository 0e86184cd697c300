#include "graph/weight_format.h"

#include <algorithm>
#include <array>

namespace onw {
namespace {

using enum WeightFormat;

// format, name, bits, storage bits, codebook, group, scale, minimum, shift
constexpr std::array kFormats = {
    FormatInfo{f32, "f32", 32, 32, Codebook::none, 0, ScaleType::none, false, false},
    FormatInfo{f16, "f16", 16, 16, Codebook::none, 0, ScaleType::none, false, false},
    FormatInfo{bf16, "bf16", 16, 16, Codebook::none, 0, ScaleType::none, false, false},
    FormatInfo{q8c, "q8c", 8, 8, Codebook::integer, 0, ScaleType::f16, false, false},
    FormatInfo{q8g128, "q8g128", 8, 8, Codebook::integer, 128, ScaleType::f16, false, false},
    FormatInfo{q8g64, "q8g64", 8, 8, Codebook::integer, 64, ScaleType::f16, false, false},
    FormatInfo{q8g32, "q8g32", 8, 8, Codebook::integer, 32, ScaleType::f16, false, false},
    FormatInfo{q4g128, "q4g128", 4, 4, Codebook::integer, 128, ScaleType::f16, false, false},
    FormatInfo{q4g64, "q4g64", 4, 4, Codebook::integer, 64, ScaleType::f16, false, false},
    FormatInfo{q4g32, "q4g32", 4, 4, Codebook::integer, 32, ScaleType::f16, false, false},
    FormatInfo{q4sg128, "q4sg128", 4, 4, Codebook::integer, 128, ScaleType::f16, false, true},
    FormatInfo{q4sg64, "q4sg64", 4, 4, Codebook::integer, 64, ScaleType::f16, false, true},
    FormatInfo{q4sg32, "q4sg32", 4, 4, Codebook::integer, 32, ScaleType::f16, false, true},
    FormatInfo{q4c, "q4c", 4, 4, Codebook::integer, 0, ScaleType::f16, false, false},
    FormatInfo{q4g32m, "q4g32m", 4, 4, Codebook::integer, 32, ScaleType::f16, true, false},
    FormatInfo{q5g32m, "q5g32m", 5, 8, Codebook::integer, 32, ScaleType::f16, true, false},
    FormatInfo{nf4c, "nf4c", 4, 4, Codebook::nf4, 0, ScaleType::f16, false, false},
    FormatInfo{iq4g32, "iq4g32", 4, 4, Codebook::iq4_nl, 32, ScaleType::f16, false, false},
    FormatInfo{u2g128, "u2g128", 2, 2, Codebook::integer, 128, ScaleType::f16, true, false},
    FormatInfo{mxfp4, "mxfp4", 4, 4, Codebook::fp4_e2m1, 32, ScaleType::f16, false, false},
    FormatInfo{e4g32, "e4g32", 4, 4, Codebook::integer, 32, ScaleType::f16, false, false},
};

// The formats that differ from `format` in nothing but the group.
WeightFormat with_group(const FormatInfo& asked, int group) {
  for (const FormatInfo& f : kFormats)
    if (f.bits == asked.bits && f.codebook == asked.codebook && f.group == group && f.minimum == asked.minimum &&
        f.symmetric_shift == asked.symmetric_shift && f.format != e4g32)
      return f.format;
  return f16;
}

}  // namespace

std::span<const FormatInfo> all_formats() { return kFormats; }

const FormatInfo& info(WeightFormat format) { return kFormats[static_cast<size_t>(format)]; }

std::string_view name(WeightFormat format) { return info(format).name; }

std::optional<WeightFormat> weight_format(std::string_view name) {
  const auto found = std::ranges::find(kFormats, name, &FormatInfo::name);
  if (found == kFormats.end()) return std::nullopt;
  return found->format;
}

std::string_view name(Layout layout) { return layout == Layout::rows ? "rows" : "tiles"; }

std::optional<Layout> layout(std::string_view name) {
  if (name == "rows") return Layout::rows;
  if (name == "tiles") return Layout::tiles;
  return std::nullopt;
}

int group_for(int64_t inputs) {
  for (const int group : {128, 64, 32})
    if (inputs % group == 0) return group;
  return 0;
}

WeightFormat fit(WeightFormat asked, int64_t inputs) {
  const FormatInfo& f = info(asked);
  if (f.plain()) return asked;
  const int group = group_for(inputs);
  if (group == 0) return f16;
  if (f.group == 0 || inputs % f.group == 0) return asked;
  if (asked == u2g128) return group == 64 ? q4g64 : q4g32;  // there are no smaller groups of 2 bits
  return with_group(f, group);
}

}  // namespace onw
