// Codes, scales and biases in three tensors, as MLX saves them: w = scale * code + bias, codes unsigned, packed from
// the lowest bit of each 32-bit word on along the inputs, scales and biases [rows, groups].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace onw {

enum class BlockType : uint32_t;

// Of a tensor whose codes are so; bits 0: it is not.
struct AffineParts {
  int bits = 0;           // 1, 2, 4 or 8
  int64_t group = 0;      // inputs that share a scale
  BlockType number = {};  // of scales and biases: f16, bf16 or f32
  std::span<const std::byte> biases = {};
};

class AffineTensor {
 public:
  // `codes` and `scales` as the file holds them. Inputs are a multiple of the group and of 32 / bits.
  AffineTensor(std::span<const std::byte> codes, std::span<const std::byte> scales, const AffineParts& parts,
               int64_t inputs)
      : codes_(codes), scales_(scales), parts_(parts), inputs_(inputs) {}

  // Row `row` as FP32: the product rounded, then the sum.
  void read(int64_t row, float* out) const;

  // Its codes, and its scales and biases rounded to F16, each repeated where there are more places than groups. Codes
  // have at most 7 bits.
  void take(int64_t row, std::span<int8_t> codes, std::span<uint16_t> scales, std::span<uint16_t> minima) const;

 private:
  int code(int64_t row, int64_t input) const;
  float number(std::span<const std::byte> from, int64_t row, int64_t group) const;

  std::span<const std::byte> codes_, scales_;
  AffineParts parts_;
  int64_t inputs_;
};

}  // namespace onw
