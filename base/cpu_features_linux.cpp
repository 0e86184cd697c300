#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "base/cpu_features.h"

namespace onw {
namespace {

struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zero where the CPU does not have the leaf.
Leaf cpuid(uint32_t leaf, uint32_t subleaf) {
  Leaf l;
  if (__get_cpuid_count(leaf, subleaf, &l.eax, &l.ebx, &l.ecx, &l.edx) == 0) return {};
  return l;
}

// Register states that the operating system saves (XCR0), read as _xgetbv(0) does but without its compiler flag.
uint64_t saved_states() {
  uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool bit(uint32_t word, int n) { return (word >> n & 1) != 0; }

bool has_states(uint64_t saved, uint64_t wanted) { return (saved & wanted) == wanted; }

// Tile data (state component 18) is off until a process asks for it (Linux 5.16).
bool amx_permitted() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::string brand() {
  if (cpuid(0x80000000u, 0).eax < 0x80000004u) return "unknown CPU";
  char text[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    const Leaf l = cpuid(0x80000002u + i, 0);
    std::memcpy(text + i * 16, &l, 16);
  }
  std::string name = text;
  name.erase(0, name.find_first_not_of(' '));
  return name;
}

CpuFeatures detect() {
  CpuFeatures f;
  f.model = brand();
  f.amd = cpuid(0, 0).ebx == signature_AMD_ebx;
  const Leaf one = cpuid(1, 0), seven = cpuid(7, 0), seven_one = cpuid(7, 1);
  if (!bit(one.ecx, 27)) return f;  // no XGETBV: the system saves no wide registers
  const uint64_t saved = saved_states();
  const bool ymm = has_states(saved, 0x6);
  const bool zmm = has_states(saved, 0xe6);
  const bool tiles = has_states(saved, 0x60000);
  f.avx2 = ymm && bit(one.ecx, 28) && bit(one.ecx, 12) && bit(one.ecx, 29) && bit(seven.ebx, 5) && bit(seven.ebx, 8);
  f.avx_vnni = f.avx2 && bit(seven_one.eax, 4);
  f.avx512_vnni = f.avx2 && zmm && bit(seven.ebx, 16) && bit(seven.ebx, 17) && bit(seven.ebx, 30) &&
                  bit(seven.ebx, 31) && bit(seven.ecx, 11);
  f.amx_int8 = f.avx512_vnni && tiles && bit(seven.edx, 24) && bit(seven.edx, 25) && amx_permitted();
  return f;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

}  // namespace onw
