#include "kernels/roof/roof.h"

#include <cstring>

#include "base/result.h"
#include "kernels/roof/loops.h"

namespace onw {
namespace roof {

uint64_t read_generic(const std::byte* p, size_t bytes) {
  uint64_t x[4] = {};
  for (size_t i = 0; i + 32 <= bytes; i += 32)
    for (size_t j = 0; j < 4; ++j) {
      uint64_t word;
      std::memcpy(&word, p + i + j * 8, 8);
      x[j] ^= word;
    }
  return x[0] ^ x[1] ^ x[2] ^ x[3];
}

int64_t dot_generic(int64_t iterations) {
  int32_t sum[16] = {};
  int32_t x = 3;
  for (int64_t i = 0; i < iterations; ++i) {
    for (int32_t& s : sum) s += x * x;
    __asm__ volatile("" : "+r"(x), "+m"(sum));
  }
  return iterations * 32;
}

}  // namespace roof

uint64_t roof_read(std::span<const std::byte> memory, Isa isa) {
  if (runs_at(Isa::avx512vnni, isa)) return roof::read_avx512vnni(memory.data(), memory.size());
  if (runs_at(Isa::avx2, isa)) return roof::read_avx2(memory.data(), memory.size());
  return roof::read_generic(memory.data(), memory.size());
}

int64_t roof_dot(int64_t iterations, Isa isa) {
  switch (isa) {
    case Isa::generic:
      return roof::dot_generic(iterations);
    case Isa::avx2:
      return roof::dot_avx2(iterations);
    case Isa::avxvnni:
      return roof::dot_avxvnni(iterations);
    case Isa::avx512vnni:
      return roof::dot_avx512vnni(iterations);
    case Isa::amx:
      return roof::dot_amx(iterations);
  }
  CHECK(false && "every level is listed");
  return 0;
}

}  // namespace onw
