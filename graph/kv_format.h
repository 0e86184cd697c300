// How K and V are kept in a sequence's cache.
#pragma once

#include <cstdint>

namespace onw {

// int8: codes with one F16 scale per position and head, at least 2^-14 (docs/arithmetic.md). f32 is the unquantised
// reference's.
enum class KvFormat : uint8_t { int8, f16, f32 };

}  // namespace onw
