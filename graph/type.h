// What a value of the graph is: an element type and a shape, of which the row count may be symbolic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace onw {

enum class DType : uint8_t {
  f32,
  f16,
  i8,
  u8,
  i4,  // two to a byte, the low bits first
  i32,
  boolean,
  q8,     // INT8 codes with an FP32 scale per row and group (quantize)
  route,  // expert ids and weights of one row (route)
  none,   // an effect without a value (kv_write)
};
std::string_view name(DType dtype);
std::optional<DType> dtype(std::string_view name);

// The number of rows of a step, where it is not fixed yet; prints as S.
constexpr int64_t kRows = -1;

using Shape = std::vector<int64_t>;

struct Type {
  DType dtype = DType::f32;
  Shape shape;
  int64_t group = 0;  // q8 only

  int64_t last() const { return shape.empty() ? 1 : shape.back(); }
  // Elements of one row: the product of all dimensions but the first.
  int64_t row_elements() const;
  bool operator==(const Type&) const = default;
};

// "f32[S,576]", "q8g64[S,576]", "none"; parse_type reads what to_string writes.
std::string to_string(const Shape& shape);
std::string to_string(const Type& type);
std::optional<Type> parse_type(std::string_view text);

}  // namespace onw
