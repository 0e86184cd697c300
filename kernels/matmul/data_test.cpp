#include "kernels/matmul/data_test.h"

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "quant/codebook.h"

namespace onw::test {
namespace {

uint16_t half_for(Data data, std::mt19937& random) {
  const auto pick = static_cast<uint16_t>(random());
  switch (data) {
    case Data::tiny:
      return pick % 4 == 0 ? 0 : pick & 0x83ff;  // zero and subnormal
    case Data::huge:
      return pick % 8 == 0 ? 0x7bff : static_cast<uint16_t>((pick & 0x83ff) | 0x7800);
    case Data::random:
    case Data::saturating:
    case Data::lowest:
      break;
  }
  return static_cast<uint16_t>((pick & 0x87ff) | 0x1c00);  // around 0.005
}

uint8_t stored_code(const FormatInfo& f, Data data, std::mt19937& random) {
  const auto pick = static_cast<uint8_t>(random());
  const auto largest = static_cast<uint8_t>(f.bits == 5 ? 31 : 255);
  if (data == Data::lowest) return 0;
  if (data == Data::saturating) return random() % 16 == 0 ? 0 : largest;
  return pick & largest;
}

void fill_plain(const FormatInfo& f, std::span<std::byte> out, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const size_t size = f.storage_bits / 8;
  for (size_t i = 0; i < out.size(); i += size) {
    const float x = normal(random);
    const uint16_t bits = f.format == WeightFormat::f16 ? float_to_half(x) : float_to_bf16(x);
    std::memcpy(out.data() + i, size == 4 ? static_cast<const void*>(&x) : &bits, size);
  }
}

float x_scale_for(Data data, std::mt19937& random) {
  if (data == Data::tiny) return random() % 4 == 0 ? 0.0f : std::ldexp(1.0f, -107 - static_cast<int>(random() % 20));
  if (data == Data::huge) return std::ldexp(1.5f, static_cast<int>(random() % 120));
  return std::uniform_real_distribution<float>(0.001f, 0.02f)(random);
}

int8_t x_code_for(Data data, std::mt19937& random) {
  if (data == Data::saturating) return random() % 16 == 0 ? -127 : 127;
  if (data == Data::lowest) return random() % 2 == 0 ? -127 : 127;
  return static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
}

}  // namespace

std::string_view name(Data data) {
  switch (data) {
    case Data::random:
      return "random";
    case Data::saturating:
      return "saturating";
    case Data::lowest:
      return "lowest";
    case Data::tiny:
      return "tiny";
    case Data::huge:
      return "huge";
  }
  return "?";
}

TestWeight::TestWeight(WeightFormat format, const Shape& shape, Data data, uint32_t seed)
    : format_(format),
      shape_(shape),
      codes_(weight_bytes(format, Layout::tiles, shape.outputs, shape.inputs).codes),
      scales_(weight_bytes(format, Layout::tiles, shape.outputs, shape.inputs).scales),
      minima_(weight_bytes(format, Layout::tiles, shape.outputs, shape.inputs).minima) {
  std::mt19937 random(seed);
  const FormatInfo& f = info(format);
  if (f.plain()) {
    fill_plain(f, codes_.bytes(), random);
    return;
  }
  for (std::byte& code : codes_.bytes()) code = static_cast<std::byte>(stored_code(f, data, random));
  for (uint16_t& scale : scales_.as<uint16_t>()) scale = half_for(data, random);
  for (uint16_t& minimum : minima_.as<uint16_t>()) minimum = half_for(data, random);
}

WeightView TestWeight::view() const {
  return {format_, Layout::tiles, shape_.outputs, shape_.inputs, codes_.bytes(), scales_.bytes(), minima_.bytes()};
}

TestRows::TestRows(const Shape& s, Data data, uint32_t seed)
    : codes_(quantized_row_stride(s.rows) * s.inputs),
      scales_(quantized_row_stride(s.rows) * (s.inputs / s.x_group) * 4),
      sums_(quantized_row_stride(s.rows) * (s.inputs / 32) * 4) {
  rows_ = {s.rows, s.inputs, quantized_row_stride(s.rows), s.x_group};
  rows_.codes = codes_.as<int8_t>().data();
  rows_.scales = scales_.as<float>().data();
  rows_.sums = sums_.as<int32_t>().data();
  std::mt19937 random(seed);
  for (int64_t g = 0; g < s.inputs / s.x_group; ++g)
    for (int64_t r = 0; r < rows_.row_stride; ++r) {
      const bool padding = r >= s.rows;
      rows_.scales[g * rows_.row_stride + r] = padding ? NAN : x_scale_for(data, random);
      for (int64_t k = 0; k < s.x_group; ++k) {
        const auto code = static_cast<int8_t>(padding ? -128 : x_code_for(data, random));
        rows_.codes[(g * rows_.row_stride + r) * s.x_group + k] = code;
        int32_t& sum = rows_.sums[(g * s.x_group + k) / 32 * rows_.row_stride + r];
        if (padding) {
          sum = INT32_MAX;
        } else {
          sum += code;
        }
      }
    }
}

TestFloatRows::TestFloatRows(const Shape& shape, uint32_t seed)
    : shape_(shape), data_((shape.rows * (shape.inputs + 3) - 3) * 4) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& x : data_.as<float>()) x = normal(random);
}

FloatRows TestFloatRows::rows() const { return {data_.as<float>().data(), shape_.rows, shape_.inputs + 3}; }

}  // namespace onw::test
