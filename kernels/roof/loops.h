// The loops of roof.h, one pair per instruction set. All that the files with wide instructions include.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onw::roof {

uint64_t read_generic(const std::byte* p, size_t bytes);
uint64_t read_avx2(const std::byte* p, size_t bytes);
uint64_t read_avx512vnni(const std::byte* p, size_t bytes);

int64_t dot_generic(int64_t iterations);
int64_t dot_avx2(int64_t iterations);
int64_t dot_avxvnni(int64_t iterations);
int64_t dot_avx512vnni(int64_t iterations);
int64_t dot_amx(int64_t iterations);

}  // namespace onw::roof
