#include "convert/read_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "base/half.h"
#include "base/trig.h"

namespace onw {
namespace {

constexpr int kGroup = 32;     // of MXFP4
constexpr int kFp4Bias = 127;  // of E8M0, its scales

uint16_t half_bits(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

// One row's codes, scales and minima, group after group.
struct GroupSink {
  int8_t* codes;
  uint16_t* scales;
  uint16_t* minima;  // unused where the format has none
};

// Nibbles of the classic blocks: values 0..15 are the low nibbles of the 16 bytes, 16..31 the high ones.
void nibbles(const uint8_t* packed, int offset, int8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = static_cast<int8_t>((packed[i] & 15) - offset);
    codes[i + 16] = static_cast<int8_t>((packed[i] >> 4) - offset);
  }
}

void five_bits(const uint8_t* high, const uint8_t* packed, int offset, int8_t* codes) {
  uint32_t fifth;
  std::memcpy(&fifth, high, sizeof fifth);
  for (int i = 0; i < 16; ++i) {
    codes[i] = static_cast<int8_t>(((packed[i] & 15) | static_cast<int>((fifth >> i) & 1) << 4) - offset);
    codes[i + 16] = static_cast<int8_t>(((packed[i] >> 4) | static_cast<int>((fifth >> (i + 16)) & 1) << 4) - offset);
  }
}

void q4_0(const uint8_t* b, const GroupSink& out) {
  *out.scales = half_bits(b);
  nibbles(b + 2, 8, out.codes);
}

void q4_1(const uint8_t* b, const GroupSink& out) {
  *out.scales = half_bits(b);
  *out.minima = half_bits(b + 2);
  nibbles(b + 4, 0, out.codes);
}

void q5_0(const uint8_t* b, const GroupSink& out) {
  *out.scales = half_bits(b);
  five_bits(b + 2, b + 6, 16, out.codes);
}

void q5_1(const uint8_t* b, const GroupSink& out) {
  *out.scales = half_bits(b);
  *out.minima = half_bits(b + 2);
  five_bits(b + 4, b + 8, 0, out.codes);
}

void q8_0(const uint8_t* b, const GroupSink& out) {
  *out.scales = half_bits(b);
  std::memcpy(out.codes, b + 2, 32);
}

void iq4_nl(const uint8_t* b, const GroupSink& out) {
  *out.scales = half_bits(b);
  nibbles(b + 2, 0, out.codes);
}

// Scale and minimum of sub-block `sub` of Q4_K and Q5_K: a product each, rounded to F16; the file subtracts the
// minimum.
void k_scales(const uint8_t* b, int sub, const GroupSink& out) {
  const SubScale s = k_sub_scale(b + 4, sub);
  out.scales[sub] = float_to_half(half_to_float(half_bits(b)) * static_cast<float>(s.scale));
  out.minima[sub] = float_to_half(-half_to_float(half_bits(b + 2)) * static_cast<float>(s.minimum));
}

uint16_t fp4_scale(int exponent) { return float_to_half(std::ldexp(1.0f, exponent)); }

void mxfp4(const uint8_t* b, const GroupSink& out) {
  *out.scales = fp4_scale(b[0] - kFp4Bias);
  nibbles(b + 1, 0, out.codes);
}

void q4_k(const uint8_t* b, const GroupSink& out) {
  for (int sub = 0; sub < 8; ++sub) {
    k_scales(b, sub, out);
    for (int i = 0; i < kGroup; ++i)
      out.codes[kGroup * sub + i] = static_cast<int8_t>((b[16 + 32 * (sub / 2) + i] >> (4 * (sub % 2))) & 15);
  }
}

void q5_k(const uint8_t* b, const GroupSink& out) {
  for (int sub = 0; sub < 8; ++sub) {
    k_scales(b, sub, out);
    for (int i = 0; i < kGroup; ++i) {
      const int low = (b[48 + 32 * (sub / 2) + i] >> (4 * (sub % 2))) & 15;
      out.codes[kGroup * sub + i] = static_cast<int8_t>(low | ((b[16 + i] >> sub) & 1) << 4);
    }
  }
}

// (code - 1) * d for the groups of a block: scale d, minimum -d.
template <BlockType type, int kScaleAt, int kGroups>
void ternary(const uint8_t* b, const GroupSink& out) {
  const uint16_t d = half_bits(b + kScaleAt);
  for (int g = 0; g < kGroups; ++g) {
    out.scales[g] = d;
    out.minima[g] = d ^ 0x8000;
  }
  ternary_codes(type, b, out.codes);
}

// A bit is a sign: 2 d times it, less d.
void q1_0(const uint8_t* b, const GroupSink& out) {
  const uint16_t d = half_bits(b);
  *out.scales = float_to_half(2 * half_to_float(d));
  *out.minima = d ^ 0x8000;
  for (int i = 0; i < 128; ++i) out.codes[i] = static_cast<int8_t>(b[2 + i / 8] >> (i % 8) & 1);
}

// Groups of 64 have 4 bits here: code - 1, without a minimum.
void q2_0(const uint8_t* b, const GroupSink& out) {
  *out.scales = half_bits(b);
  ternary_codes(BlockType::q2_0, b, out.codes);
  for (int i = 0; i < 64; ++i) --out.codes[i];
}

struct TakeOver {
  BlockType type;
  WeightFormat format;
  void (*unpack)(const uint8_t*, const GroupSink&);
};

constexpr std::array kTakeOvers = {
    TakeOver{BlockType::q4_0, WeightFormat::q4g32, q4_0},
    TakeOver{BlockType::q4_1, WeightFormat::q4g32m, q4_1},
    TakeOver{BlockType::q5_0, WeightFormat::q8g32, q5_0},
    TakeOver{BlockType::q5_1, WeightFormat::q5g32m, q5_1},
    TakeOver{BlockType::q8_0, WeightFormat::q8g32, q8_0},
    TakeOver{BlockType::iq4_nl, WeightFormat::iq4g32, iq4_nl},
    TakeOver{BlockType::q4_k, WeightFormat::q4g32m, q4_k},
    TakeOver{BlockType::q5_k, WeightFormat::q5g32m, q5_k},
    TakeOver{BlockType::mxfp4, WeightFormat::mxfp4, mxfp4},
    TakeOver{BlockType::q1_0, WeightFormat::u2g128, q1_0},
    TakeOver{BlockType::q2_0, WeightFormat::q4g64, q2_0},
    TakeOver{BlockType::tq1_0, WeightFormat::u2g128, ternary<BlockType::tq1_0, 52, 2>},
    TakeOver{BlockType::tq2_0, WeightFormat::u2g128, ternary<BlockType::tq2_0, 64, 2>},
    TakeOver{BlockType::pq2_0, WeightFormat::u2g128, ternary<BlockType::pq2_0, 0, 1>},
    TakeOver{BlockType::ptq1_0, WeightFormat::u2g128, ternary<BlockType::ptq1_0, 26, 1>},
    TakeOver{BlockType::affine_u2, WeightFormat::u2g128, nullptr},
    TakeOver{BlockType::affine_q4, WeightFormat::q4g32m, nullptr},
};

const TakeOver* take_over_of(BlockType type) {
  const auto found = std::ranges::find(kTakeOvers, type, &TakeOver::type);
  return found == kTakeOvers.end() ? nullptr : &*found;
}

}  // namespace

std::optional<WeightFormat> taken_over_format(BlockType type) {
  const TakeOver* row = take_over_of(type);
  return row == nullptr ? std::nullopt : std::optional(row->format);
}

// A rate beyond FP32 forgets everything at once, as the largest one does: kernels end log decays at e^-80.
float minus_exp(float x) {
  if (!std::isfinite(x)) return x;
  return -static_cast<float>(std::min<double>(power(std::numbers::e, x), std::numeric_limits<float>::max()));
}

RowReader::RowReader(const SourceTensor& tensor, const WeightDecl& weight, const WeightSource& from,
                     std::span<const int8_t> exponents, std::span<const int8_t> input_exponents)
    : tensor_(tensor),
      exponents_(exponents),
      input_exponents_(input_exponents),
      fold_(from.fold),
      transposed_(from.transposed),
      begin_(from.begin),
      step_(from.step),
      head_dim_(weight.head_dim),
      outputs_(weight.shape[0]),
      inputs_(weight.shape.size() > 1 ? weight.shape[1] : 1) {
  CHECK(fold_ != Fold::head_half || (head_dim_ > 0 && outputs_ % head_dim_ == 0));
  CHECK(fold_ != Fold::rope_unpair || (head_dim_ > 0 && head_dim_ % 2 == 0 && outputs_ % head_dim_ == 0));
  CHECK(exponents_.empty() || static_cast<int64_t>(exponents_.size()) == outputs_);
  CHECK(input_exponents_.empty() || static_cast<int64_t>(input_exponents_.size()) == inputs_);
}

// Pairs (2i, 2i+1) of a head become (i, i + d/2); halves of heads stand together.
int64_t RowReader::source_row(int64_t row) const {
  if (fold_ == Fold::head_half) return begin_ + row / head_dim_ * 2 * head_dim_ + row % head_dim_;
  if (fold_ != Fold::rope_unpair) return begin_ + row * step_;
  const int64_t half = head_dim_ / 2, head = row / head_dim_, i = row % head_dim_;
  return begin_ + head * head_dim_ + (i < half ? 2 * i : 2 * (i - half) + 1);
}

std::span<const std::byte> RowReader::row_bytes(int64_t row) const {
  const BlockInfo& info = block_info(tensor_.type);
  const int64_t bytes = inputs_ / info.values * info.bytes;
  return tensor_.bytes.subspan(source_row(row) * bytes, bytes);
}

Result<void> RowReader::read(int64_t first, int64_t count, float* out) const {
  if (tensor_.type == BlockType::mxfp4 && inputs_ > 1) RETURN_IF_ERROR(check_fp4_scales(first, count, 127, ""));
  if (tensor_.affine.bits > 0) {
    const AffineTensor affine(tensor_.bytes, tensor_.scales, tensor_.affine, inputs_);
    for (int64_t i = 0; i < count; ++i) affine.read(source_row(first + i), out + i * inputs_);
  } else if (const BlockInfo& info = block_info(tensor_.type);
             inputs_ == 1 && info.values > 1) {  // a quantised vector: its blocks run along it
    std::vector<float> all(tensor_.bytes.size() / info.bytes * info.values);
    dequantise_blocks(tensor_.type, tensor_.bytes, all.data());
    for (int64_t i = 0; i < count; ++i) out[i] = all[source_row(first + i)];
  } else if (transposed_) {
    read_transposed(first, count, out);
  } else if (!tensor_.scales.empty()) {
    std::vector<int8_t> codes(inputs_);
    std::vector<int> exponents(inputs_ / kGroup);
    for (int64_t i = 0; i < count; ++i) {
      read_fp4(first + i, codes, exponents);
      for (int64_t k = 0; k < inputs_; ++k)
        out[i * inputs_ + k] = std::ldexp(fp4_value(codes[k]), exponents[k / kGroup]);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) dequantise_blocks(tensor_.type, row_bytes(first + i), out + i * inputs_);
  }
  const auto values = std::span(out, count * inputs_);
  if (fold_ == Fold::add_one)
    for (float& v : values) v += 1;
  if (fold_ == Fold::minus_exp)
    for (float& v : values) v = minus_exp(v);
  if (!exponents_.empty())
    for (int64_t i = 0; i < count; ++i) {
      const float factor = std::ldexp(1.0f, exponents_[first + i]);
      for (float& v : values.subspan(i * inputs_, inputs_)) v *= factor;
    }
  for (int64_t c = 0; c < static_cast<int64_t>(input_exponents_.size()); ++c) {
    const float factor = std::ldexp(1.0f, input_exponents_[c]);
    for (int64_t i = 0; i < count; ++i) out[i * inputs_ + c] *= factor;
  }
  return check_finite(values, first);
}

// Of [inputs, rows]: what of each input's row is ours.
void RowReader::read_transposed(int64_t first, int64_t count, float* out) const {
  const BlockInfo& info = block_info(tensor_.type);
  const int64_t columns = tensor_.columns(), begin = source_row(first), wanted = (count - 1) * step_ + 1;
  std::vector<float> piece(static_cast<size_t>(wanted));
  for (int64_t k = 0; k < inputs_; ++k) {
    dequantise_blocks(tensor_.type, tensor_.bytes.subspan((k * columns + begin) * info.bytes, wanted * info.bytes),
                      piece.data());
    for (int64_t i = 0; i < count; ++i) out[i * inputs_ + k] = piece[i * step_];
  }
}

// Scales are powers of two from 2^-127 to 2^127, and 255, which is no number.
Result<void> RowReader::check_fp4_scales(int64_t first, int64_t count, int largest, std::string_view remedy) const {
  constexpr int kNoNumber = 255 - kFp4Bias;
  std::vector<int8_t> codes(inputs_);
  std::vector<int> exponents(inputs_ / kGroup);
  for (int64_t i = 0; i < count; ++i) {
    read_fp4(first + i, codes, exponents);
    const int most = std::ranges::max(exponents);
    if (most == kNoNumber)
      return error(Code::numerics,
                   "{}: '{}' has the scale 255 in row {}, which is no number in E8M0. The file is damaged: download it "
                   "again",
                   tensor_.file.string(), tensor_.name, source_row(first + i));
    if (most > largest)
      return error(Code::numerics, "{}: '{}' has a scale of 2^{} in row {}, more than {}", tensor_.file.string(),
                   tensor_.name, most, source_row(first + i), remedy);
  }
  return {};
}

// Pairs of codes, the first in the low nibble.
void RowReader::read_fp4(int64_t row, std::span<int8_t> codes, std::span<int> exponents) const {
  if (tensor_.scales.empty()) {  // of GGUF: the scale before its codes, low nibbles before high ones
    const auto* block = reinterpret_cast<const uint8_t*>(row_bytes(row).data());
    for (size_t g = 0; g < exponents.size(); ++g, block += 1 + kGroup / 2) {
      nibbles(block + 1, 0, codes.data() + g * kGroup);
      exponents[g] = block[0] - kFp4Bias;
    }
    return;
  }
  const auto* packed = reinterpret_cast<const uint8_t*>(tensor_.bytes.data()) + source_row(row) * (inputs_ / 2);
  const auto* scales = reinterpret_cast<const uint8_t*>(tensor_.scales.data()) + source_row(row) * (inputs_ / kGroup);
  for (size_t k = 0; k < codes.size(); ++k) codes[k] = static_cast<int8_t>(packed[k / 2] >> (k % 2 * 4) & 15);
  for (size_t g = 0; g < exponents.size(); ++g) exponents[g] = scales[g] - kFp4Bias;
}

Result<void> RowReader::take_over_fp4(int64_t first, int64_t count, const WeightParts& out) const {
  const int64_t groups = inputs_ / kGroup;
  std::vector<int8_t> codes(count * inputs_);
  std::vector<uint16_t> scales(count * groups);
  std::vector<int> exponents(groups);
  for (int64_t i = 0; i < count; ++i) {
    read_fp4(first + i, std::span(codes).subspan(i * inputs_, inputs_), exponents);
    std::ranges::transform(exponents, scales.begin() + i * groups, fp4_scale);
  }
  if (!exponents_.empty())
    for (int64_t i = 0; i < count; ++i)
      RETURN_IF_ERROR(scale_halves(std::span(scales).subspan(i * groups, groups), first + i));
  return adopt(WeightFormat::mxfp4, codes, scales, {}, count, inputs_, out);
}

Result<void> RowReader::take_over_affine(WeightFormat format, int64_t first, int64_t count,
                                         const WeightParts& out) const {
  const int64_t groups = inputs_ / info(format).group;
  const AffineTensor affine(tensor_.bytes, tensor_.scales, tensor_.affine, inputs_);
  std::vector<int8_t> codes(count * inputs_);
  std::vector<uint16_t> scales(count * groups), minima(count * groups);
  for (int64_t i = 0; i < count; ++i) {
    const auto halves = [&](std::vector<uint16_t>& all) { return std::span(all).subspan(i * groups, groups); };
    affine.take(source_row(first + i), std::span(codes).subspan(i * inputs_, inputs_), halves(scales), halves(minima));
    if (exponents_.empty()) continue;
    RETURN_IF_ERROR(scale_halves(halves(scales), first + i));
    RETURN_IF_ERROR(scale_halves(halves(minima), first + i));
  }
  RETURN_IF_ERROR(check_scales(scales, first, groups));
  RETURN_IF_ERROR(check_scales(minima, first, groups));
  return adopt(format, codes, scales, minima, count, inputs_, out);
}

Result<void> RowReader::check_scales(std::span<const uint16_t> scales, int64_t first, int64_t groups) const {
  const auto bad = std::ranges::find_if(scales, [](uint16_t s) { return !std::isfinite(half_to_float(s)); });
  if (bad == scales.end()) return {};
  return error(Code::numerics, "{}: '{}' has a scale beyond F16's 65504 in row {}. Take --format q4g32",
               tensor_.file.string(), tensor_.name, source_row(first + (bad - scales.begin()) / groups));
}

Result<void> RowReader::check_finite(std::span<const float> values, int64_t first) const {
  const auto bad = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
  if (bad == values.end()) return {};
  if (tensor_.type == BlockType::mxfp4)
    return error(Code::numerics,
                 "{}: '{}' holds codes whose scale takes them beyond FP32 in row {}. Take a checkpoint in BF16",
                 tensor_.file.string(), tensor_.name, source_row(first + (bad - values.begin()) / inputs_));
  return error(Code::numerics,
               "{}: '{}' holds {} in row {}, expected finite numbers. The file is damaged: download it again",
               tensor_.file.string(), tensor_.name, *bad, source_row(first + (bad - values.begin()) / inputs_));
}

// F16 numbers of one row times its power of two.
Result<void> RowReader::scale_halves(std::span<uint16_t> halves, int64_t row) const {
  for (uint16_t& half : halves) {
    half = float_to_half(std::ldexp(half_to_float(half), exponents_[row]));
    if (!std::isfinite(half_to_float(half)))
      return error(Code::numerics, "{}: '{}' has a scale near F16's limit in row {}. Take --format f32",
                   tensor_.file.string(), tensor_.name, source_row(row));
  }
  return {};
}

Result<void> RowReader::take_over(WeightFormat format, int64_t first, int64_t count, const WeightParts& out) const {
  if (tensor_.affine.bits > 0) return take_over_affine(format, first, count, out);
  if (tensor_.type == BlockType::mxfp4)
    RETURN_IF_ERROR(check_fp4_scales(first, count, 15, "the 2^15 of F16, as which onw keeps them. Take --format f32"));
  if (!tensor_.scales.empty()) return take_over_fp4(first, count, out);
  const TakeOver* row = take_over_of(tensor_.type);
  CHECK(row != nullptr && row->format == format && fold_ != Fold::add_one && fold_ != Fold::minus_exp &&
        input_exponents_.empty());
  const BlockInfo& block = block_info(tensor_.type);
  const int64_t group_inputs = info(format).group, groups = inputs_ / group_inputs;
  std::vector<int8_t> codes(count * inputs_);
  std::vector<uint16_t> scales(count * groups), minima(info(format).minimum ? count * groups : 0);
  for (int64_t i = 0; i < count; ++i) {
    const auto bytes = row_bytes(first + i);
    for (int64_t k = 0; k < inputs_; k += block.values) {
      const int64_t group = i * groups + k / group_inputs;
      row->unpack(
          reinterpret_cast<const uint8_t*>(bytes.data()) + k / block.values * block.bytes,
          {codes.data() + i * inputs_ + k, scales.data() + group, minima.empty() ? nullptr : minima.data() + group});
    }
  }
  RETURN_IF_ERROR(check_scales(scales, first, groups));
  if (!exponents_.empty()) {
    for (int64_t i = 0; i < count; ++i)
      for (std::vector<uint16_t>* halves : {&scales, &minima})
        if (!halves->empty()) RETURN_IF_ERROR(scale_halves(std::span(*halves).subspan(i * groups, groups), first + i));
  }
  return adopt(format, codes, scales, minima, count, inputs_, out);
}

}  // namespace onw
