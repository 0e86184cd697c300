// How K and V are kept in a sequence's cache.
#pragma once

#include <cstdint>
#include <string_view>

namespace onw {

// int8: codes with one F16 scale per position and head, at least 2^-14 (docs/arithmetic.md). f32 is the unquantised
// reference's.
enum class KvFormat : uint8_t { int8, f16, f32 };

constexpr std::string_view name(KvFormat kv) {
  return kv == KvFormat::int8 ? "int8" : kv == KvFormat::f16 ? "f16" : "f32";
}

}  // namespace onw
