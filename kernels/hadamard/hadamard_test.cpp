#include "kernels/hadamard/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/guarded_memory.h"

namespace onw {
namespace {

std::vector<float> draw(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

std::vector<float> draw_signs(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> signs(n);
  for (float& s : signs) s = random() % 2 == 0 ? 1.0f : -1.0f;
  return signs;
}

TEST(Hadamard, is_the_product_with_Sylvester_s_matrix) {
  const int64_t n = 48, block = 16;
  const auto x = draw(n, 1), signs = draw_signs(n, 2);
  std::vector<float> y(n), back(n);
  hadamard({signs.data(), n, block}, x.data(), y.data(), Isa::generic);
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < block; ++k) {
      const int64_t at = i / block * block + k;
      const int odd = std::popcount(static_cast<uint64_t>(i % block & k)) % 2;
      sum += (odd == 1 ? -1.0 : 1.0) * x[at] * signs[at];
    }
    EXPECT_NEAR(y[i], sum / 4, 1e-6);
  }
  hadamard({signs.data(), n, block, true}, y.data(), back.data(), Isa::generic);
  for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(back[i], x[i], 1e-6);
}

TEST(Hadamard, gives_the_same_bits_on_every_instruction_set) {
  for (const Isa isa : available_isas(cpu_features()))
    for (const int64_t block : {1, 2, 4, 8, 16, 32, 512, 1024, 4096})
      for (const bool inverse : {false, true}) {
        const int64_t n = block * 3;
        const auto x = draw(n, static_cast<uint32_t>(block)), signs = draw_signs(n, 5);
        std::vector<float> wanted(n);
        const GuardedMemory got(n * 4);
        hadamard({signs.data(), n, block, inverse}, x.data(), wanted.data(), Isa::generic);
        hadamard({signs.data(), n, block, inverse}, x.data(), got.as<float>().data(), isa);
        EXPECT_EQ(std::memcmp(wanted.data(), got.as<float>().data(), static_cast<size_t>(n) * 4), 0)
            << name(isa) << ", blocks of " << block;
      }
}

TEST(Hadamard, works_in_place) {
  const auto x = draw(1024, 3), signs = draw_signs(1024, 4);
  std::vector<float> out(1024), in_place = x;
  hadamard({signs.data(), 1024, 256}, x.data(), out.data(), Isa::generic);
  hadamard({signs.data(), 1024, 256}, in_place.data(), in_place.data(), Isa::generic);
  EXPECT_EQ(out, in_place);
}

}  // namespace
}  // namespace onw
