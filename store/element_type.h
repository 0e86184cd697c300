// The element types of safetensors files, as one table.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace onw {

enum class ElementType : uint8_t {
  boolean,
  u8,
  i8,
  f8_e4m3,
  f8_e5m2,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  i64,
  u64,
  f64
};

// As written in the file: "BF16".
std::string_view name(ElementType type);
std::optional<ElementType> element_type(std::string_view name);
int64_t bytes_of(ElementType type);

}  // namespace onw
