// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011), section 3.3: a bijection of 128-bit counters for each 64-bit key. No state, so a draw depends on
// what it is for and on nothing that was drawn before.
#pragma once

#include <array>
#include <cstdint>

namespace onw {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53U, kMultiplier1 = 0xCD9E8D57U;
  constexpr uint32_t kWeyl0 = 0x9E3779B9U, kWeyl1 = 0xBB67AE85U;  // the golden ratio, and the square root of 3 less 1
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// Uniform in [0, 1), 53 bits: the draw of one token of one choice.
constexpr double uniform_draw(uint64_t seed, uint32_t choice, uint64_t position) {
  const PhiloxCounter counter = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), choice, 0};
  const PhiloxKey key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const PhiloxCounter random = philox4x32(counter, key);
  const uint64_t bits = (static_cast<uint64_t>(random[1]) << 32 | random[0]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace onw
