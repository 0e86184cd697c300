#include "convert/affine_tensor.h"

#include "base/half.h"
#include "convert/block_type.h"

namespace onw {

// Words are little-endian, so the packing goes on from byte to byte.
int AffineTensor::code(int64_t row, int64_t input) const {
  const int64_t bit = input * parts_.bits;
  const auto byte = static_cast<uint8_t>(codes_[static_cast<size_t>(row * inputs_ * parts_.bits / 8 + bit / 8)]);
  return byte >> (bit % 8) & ((1 << parts_.bits) - 1);
}

float AffineTensor::number(std::span<const std::byte> from, int64_t row, int64_t group) const {
  const auto bytes = static_cast<size_t>(block_info(parts_.number).bytes);
  float value;
  dequantise_blocks(parts_.number,
                    from.subspan(static_cast<size_t>(row * (inputs_ / parts_.group) + group) * bytes, bytes), &value);
  return value;
}

void AffineTensor::read(int64_t row, float* out) const {
  for (int64_t g = 0; g < inputs_ / parts_.group; ++g) {
    const float scale = number(scales_, row, g), bias = number(parts_.biases, row, g);
    for (int64_t i = g * parts_.group; i < (g + 1) * parts_.group; ++i) {
      const float product = scale * static_cast<float>(code(row, i));
      out[i] = product + bias;
    }
  }
}

void AffineTensor::take(int64_t row, std::span<int8_t> codes, std::span<uint16_t> scales,
                        std::span<uint16_t> minima) const {
  for (int64_t i = 0; i < inputs_; ++i) codes[static_cast<size_t>(i)] = static_cast<int8_t>(code(row, i));
  const auto places = static_cast<int64_t>(scales.size()), inputs_of_place = inputs_ / places;
  for (int64_t p = 0; p < places; ++p) {
    const int64_t group = p * inputs_of_place / parts_.group;
    scales[static_cast<size_t>(p)] = float_to_half(number(scales_, row, group));
    minima[static_cast<size_t>(p)] = float_to_half(number(parts_.biases, row, group));
  }
}

}  // namespace onw
