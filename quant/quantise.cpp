#include "quant/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "quant/affine_search.h"
#include "quant/codebook.h"
#include "quant/scale_search.h"

namespace onw {
namespace {

struct Group {
  float scale = 0;    // before rounding to F16
  float minimum = 0;  // likewise
};

int nearest_level(float x, std::span<const float> levels) {
  int best = 0;
  for (int i = 1; i < static_cast<int>(levels.size()); ++i)
    if (std::fabs(x - levels[i]) < std::fabs(x - levels[best])) best = i;
  return best;
}

Group linear_group(const FormatInfo& f, std::span<const float> w) {
  const auto [low, high] = std::ranges::minmax(w);
  const CodeRange range = code_range(f);
  const auto top = static_cast<float>(range.highest);
  if (f.minimum) {
    const float m = half_to_float(float_to_half(low));
    return {std::max(0.0f, (high - m) / top), low};
  }
  if (f.symmetric_shift) return {std::max({0.0f, high / top, -low / (top + 1)}), 0};
  return {std::max(high, -low) / top, 0};
}

void linear_codes(const FormatInfo& f, std::span<const float> w, float s, float m, std::span<int8_t> codes) {
  const CodeRange range = code_range(f);
  for (size_t i = 0; i < w.size(); ++i)
    codes[i] = static_cast<int8_t>(s == 0 ? 0.0f : nearest_code((w[i] - m) / s, range));
}

void nearest_codes(std::span<const float> levels, std::span<const float> w, float s, std::span<int8_t> codes) {
  for (size_t i = 0; i < w.size(); ++i) codes[i] = static_cast<int8_t>(nearest_level(s == 0 ? 0.0f : w[i] / s, levels));
}

// IQ4_NL's levels are not symmetric, so both signs are tried; each is refined twice by the least-squares scale of its
// own codes. Returns F16 bits.
uint16_t iq4_group(std::span<const float> levels, std::span<const float> w, std::span<int8_t> codes) {
  float amax = 0;
  for (const float x : w) amax = std::max(amax, std::fabs(x));
  std::vector<int8_t> trial(w.size());
  double best_error = INFINITY;
  uint16_t best = 0;
  for (const float start : {amax / 127, -amax / 127}) {
    float scale = start;
    for (int pass = 0; pass < 3; ++pass) {
      const uint16_t half = float_to_half(scale);
      const float s = half_to_float(half);
      if (!std::isfinite(s)) return half;  // the caller refuses it
      nearest_codes(levels, w, s, trial);
      double wq = 0, qq = 0, error = 0;
      for (size_t i = 0; i < w.size(); ++i) {
        const double q = levels[trial[i]];
        wq += w[i] * q;
        qq += q * q;
        error += (w[i] - s * q) * (w[i] - s * q);
      }
      if (error < best_error) {
        best_error = error;
        best = half;
        std::ranges::copy(trial, codes.begin());
      }
      scale = static_cast<float>(wq / qq);
    }
  }
  return best;
}

// The power of two by which the largest weight comes to lie in [4, 8), as the microscaling formats have it: their
// largest value is 6 = 1.5 * 2^2. F16 bits; 0 for zeros.
uint16_t fp4_scale(std::span<const float> w) {
  float amax = 0;
  for (const float x : w) amax = std::max(amax, std::fabs(x));
  if (amax == 0) return 0;
  return float_to_half(std::ldexp(1.0f, std::max(std::ilogb(amax) - 2, -24)));
}

struct RowParts {
  std::span<int8_t> codes;
  std::span<uint16_t> scales;
  std::span<uint16_t> minima;  // empty where the format has none
};

// The least scale of a call, and how many were raised to it.
struct ScaleFloor {
  float least = 0;
  int64_t raised = 0;

  uint16_t raise(uint16_t half) {
    const float scale = half_to_float(half);
    if (scale <= 0 || scale >= least) return half;
    ++raised;
    return float_to_half(least);
  }
};

// With 8 bits the largest weight decides well enough.
bool wants_search(const FormatInfo& f) {
  return f.codebook == Codebook::integer && (f.bits == 2 || (f.bits == 4 && !f.minimum));
}

// A group's weights and, where known, the mean squares of the activations that meet them.
struct GroupInput {
  std::span<const float> w;
  std::span<const float> importance;
};

// One group of one row: its codes, scale and minimum.
void quantise_group(const FormatInfo& f, const GroupInput& in, std::span<int8_t> codes, uint16_t& scale,
                    uint16_t* minimum, ScaleFloor& floor) {
  const std::span<const float> w = in.w;
  switch (f.codebook) {
    case Codebook::nf4: {
      float amax = 0;
      for (const float x : w) amax = std::max(amax, std::fabs(x));
      scale = float_to_half(amax);
      return nearest_codes(nf4_levels(), w, half_to_float(scale), codes);
    }
    case Codebook::iq4_nl: {
      std::array<float, 16> levels{};
      std::ranges::copy(code_values(f).value, levels.begin());
      scale = iq4_group(levels, w, codes);
      return;
    }
    case Codebook::integer: {
      const Group g = linear_group(f, w);
      if (f.minimum && wants_search(f)) {
        const AffineScale found =
            search_affine(w, in.importance, {float_to_half(g.scale), float_to_half(g.minimum)}, code_range(f));
        scale = found.scale;
        *minimum = found.minimum;
        return linear_codes(f, w, half_to_float(scale), half_to_float(*minimum), codes);
      }
      scale = float_to_half(g.scale);
      if (wants_search(f)) scale = search_scale(w, in.importance, scale, code_range(f));
      if (!f.minimum) scale = floor.raise(scale);
      if (minimum != nullptr) *minimum = float_to_half(g.minimum);
      return linear_codes(f, w, half_to_float(scale), minimum != nullptr ? half_to_float(*minimum) : 0.0f, codes);
    }
    case Codebook::fp4_e2m1: {
      std::array<float, 16> levels{};
      for (size_t i = 0; i < levels.size(); ++i)
        levels[i] = static_cast<float>(code_values(f).value[i]) * code_values(f).step;
      scale = fp4_scale(w);
      return nearest_codes(levels, w, half_to_float(scale), codes);
    }
    case Codebook::none:
      break;
  }
  CHECK(false && "plain formats have no groups");
}

bool all_finite(std::span<const float> w) {
  return std::ranges::all_of(w, [](float x) { return std::isfinite(x); });
}

Result<void> quantise_row(const FormatInfo& f, const GroupInput& in, int64_t row, const RowParts& out,
                          ScaleFloor& floor) {
  const std::span<const float> w = in.w;
  const auto group = static_cast<int64_t>(w.size()) / static_cast<int64_t>(out.scales.size());
  for (size_t g = 0; g < out.scales.size(); ++g) {
    const auto piece = w.subspan(g * group, group);
    if (!all_finite(piece))
      return error(Code::invalid_argument, "row {}, group {}: a weight is not finite; the source is damaged", row, g);
    const auto counts = in.importance.empty() ? in.importance : in.importance.subspan(g * group, group);
    quantise_group(f, {piece, counts}, out.codes.subspan(g * group, group), out.scales[g],
                   out.minima.empty() ? nullptr : &out.minima[g], floor);
    const bool minimum_fits = out.minima.empty() || std::isfinite(half_to_float(out.minima[g]));
    if (!std::isfinite(half_to_float(out.scales[g])) || !minimum_fits)
      return error(Code::invalid_argument,
                   "row {}, group {}: {} needs a scale beyond F16's 65504; convert this tensor with --format f32", row,
                   g, f.name);
  }
  return {};
}

// One row's codes into the bytes of `rows` layout.
void pack_row(const FormatInfo& f, std::span<const int8_t> codes, std::byte* out) {
  if (f.storage_bits == 8) {
    std::memcpy(out, codes.data(), codes.size());
    return;
  }
  if (f.storage_bits == 2) {
    for (size_t i = 0; i + 3 < codes.size(); i += 4)
      out[i / 4] = static_cast<std::byte>((codes[i] & 3) | (codes[i + 1] & 3) << 2 | (codes[i + 2] & 3) << 4 |
                                          (codes[i + 3] & 3) << 6);
    return;
  }
  for (size_t i = 0; i + 1 < codes.size(); i += 2)
    out[i / 2] = static_cast<std::byte>((codes[i] & 15) | (codes[i + 1] & 15) << 4);
}

void write_plain(WeightFormat format, std::span<const float> w, std::byte* out) {
  if (format == WeightFormat::f32) {
    std::memcpy(out, w.data(), w.size_bytes());
    return;
  }
  for (size_t i = 0; i < w.size(); ++i) {
    const uint16_t bits = format == WeightFormat::f16 ? float_to_half(w[i]) : float_to_bf16(w[i]);
    std::memcpy(out + i * 2, &bits, 2);
  }
}

Result<void> check_shape(const FormatInfo& f, int64_t outputs, int64_t inputs, const WeightParts& out) {
  const int64_t unit = f.plain() ? 1 : f.group == 0 ? 32 : f.group;
  if (outputs <= 0 || inputs <= 0 || inputs % unit != 0)
    return error(Code::invalid_argument, "format {}: the shape [{}, {}] does not fit; inputs must be a multiple of {}",
                 f.name, outputs, inputs, unit);
  const WeightBytes need = weight_bytes(f.format, Layout::rows, outputs, inputs);
  if (static_cast<int64_t>(out.codes.size()) != need.codes || static_cast<int64_t>(out.scales.size()) != need.scales ||
      static_cast<int64_t>(out.minima.size()) != need.minima)
    return error(Code::invalid_argument, "format {}, shape [{}, {}]: buffers of {}, {}, {} bytes, needs {}, {}, {}",
                 f.name, outputs, inputs, out.codes.size(), out.scales.size(), out.minima.size(), need.codes,
                 need.scales, need.minima);
  return {};
}

}  // namespace

bool searches_scales(WeightFormat format) { return wants_search(info(format)); }

Result<int64_t> quantise(WeightFormat format, std::span<const float> weights, int64_t outputs, int64_t inputs,
                         const WeightParts& out, const QuantiseHints& hints) {
  const FormatInfo& f = info(format);
  RETURN_IF_ERROR(check_shape(f, outputs, inputs, out));
  CHECK(static_cast<int64_t>(weights.size()) == outputs * inputs);
  CHECK(hints.importance.empty() || static_cast<int64_t>(hints.importance.size()) == inputs);
  if (f.plain()) {
    write_plain(format, weights, out.codes.data());
    return 0;
  }
  const int64_t groups = f.group == 0 ? 1 : inputs / f.group;
  const int64_t code_bytes = inputs * f.storage_bits / 8;
  std::vector<int8_t> codes(inputs);
  std::vector<uint16_t> scales(groups), minima(f.minimum ? groups : 0);
  ScaleFloor floor{hints.least_scale};
  for (int64_t row = 0; row < outputs; ++row) {
    const GroupInput in{weights.subspan(row * inputs, inputs), hints.importance};
    RETURN_IF_ERROR(quantise_row(f, in, row, {codes, scales, minima}, floor));
    pack_row(f, codes, out.codes.data() + row * code_bytes);
    std::memcpy(out.scales.data() + row * groups * 2, scales.data(), groups * 2);
    if (f.minimum) std::memcpy(out.minima.data() + row * groups * 2, minima.data(), groups * 2);
  }
  return floor.raised;
}

Result<void> adopt(WeightFormat format, std::span<const int8_t> codes, std::span<const uint16_t> scales,
                   std::span<const uint16_t> minima, int64_t outputs, int64_t inputs, const WeightParts& out) {
  const FormatInfo& f = info(format);
  RETURN_IF_ERROR(check_shape(f, outputs, inputs, out));
  if (f.plain()) return error(Code::unsupported, "format {}: plain weights have no codes to take over", f.name);
  if (static_cast<int64_t>(codes.size()) != outputs * inputs || scales.size_bytes() != out.scales.size() ||
      minima.size_bytes() != out.minima.size())
    return error(Code::invalid_argument, "format {}, shape [{}, {}]: {} codes, {} scales and {} minima do not fit",
                 f.name, outputs, inputs, codes.size(), scales.size(), minima.size());
  const CodeRange range = code_range(f);
  const auto [low, high] = std::ranges::minmax(codes);
  if (low < range.lowest || high > range.highest)
    return error(Code::invalid_argument, "format {}: codes from {} to {}, the format holds {} to {}", f.name, low, high,
                 range.lowest, range.highest);
  pack_row(f, codes, out.codes.data());
  std::ranges::copy(std::as_bytes(scales), out.scales.begin());
  std::ranges::copy(std::as_bytes(minima), out.minima.begin());
  return {};
}

}  // namespace onw
