// What the CPU can do and the operating system lets us use.
#pragma once

#include <string>

namespace onw {

struct CpuFeatures {
  std::string model;         // the CPU's own name, e.g. "Intel(R) Core(TM) Ultra 7 258V"
  bool amd = false;          // of the maker AMD
  bool avx2 = false;         // with FMA, F16C and BMI2
  bool avx_vnni = false;     // 256-bit VNNI (VEX), with all of avx2
  bool avx512_vnni = false;  // AVX-512 F, BW, VL, DQ and VNNI, with all of avx2
  bool amx_int8 = false;     // AMX tiles and INT8, granted by the operating system, with all of avx512_vnni
};

// Asked once; asks Linux for the permission to use AMX tiles, which holds for the whole process.
const CpuFeatures& cpu_features();

}  // namespace onw
