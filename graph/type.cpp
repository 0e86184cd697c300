#include "graph/type.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace onw {
namespace {

constexpr std::array kNames = {
    std::pair{DType::f32, std::string_view("f32")},      std::pair{DType::f16, std::string_view("f16")},
    std::pair{DType::i8, std::string_view("i8")},        std::pair{DType::u8, std::string_view("u8")},
    std::pair{DType::i4, std::string_view("i4")},        std::pair{DType::i32, std::string_view("i32")},
    std::pair{DType::boolean, std::string_view("bool")}, std::pair{DType::q8, std::string_view("q8")},
    std::pair{DType::route, std::string_view("route")},  std::pair{DType::none, std::string_view("none")}};

bool parse_integer(std::string_view text, int64_t& value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string_view name(DType dtype) { return kNames[static_cast<size_t>(dtype)].second; }

std::optional<DType> dtype(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name, &std::pair<DType, std::string_view>::second);
  if (found == kNames.end()) return std::nullopt;
  return found->first;
}

int64_t Type::row_elements() const {
  int64_t n = 1;
  for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
  return n;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ',';
    text += shape[i] == kRows ? "S" : std::to_string(shape[i]);
  }
  return text + "]";
}

std::string to_string(const Type& type) {
  if (type.dtype == DType::none) return "none";
  const std::string group = type.dtype == DType::q8 ? fmt::format("g{}", type.group) : "";
  return fmt::format("{}{}{}", name(type.dtype), group, to_string(type.shape));
}

std::optional<Type> parse_type(std::string_view text) {
  if (text == "none") return Type{DType::none, {}, 0};
  const size_t bracket = text.find('[');
  if (bracket == std::string_view::npos || text.back() != ']') return std::nullopt;
  Type type;
  std::string_view head = text.substr(0, bracket);
  if (head.starts_with("q8g")) {
    if (!parse_integer(head.substr(3), type.group)) return std::nullopt;
    head = "q8";
  }
  const auto found = dtype(head);
  if (!found) return std::nullopt;
  type.dtype = *found;
  std::string_view dims = text.substr(bracket + 1, text.size() - bracket - 2);
  while (!dims.empty()) {
    const size_t comma = std::min(dims.find(','), dims.size());
    int64_t n = kRows;
    if (dims.substr(0, comma) != "S" && (!parse_integer(dims.substr(0, comma), n) || n < 0)) return std::nullopt;
    type.shape.push_back(n);
    dims.remove_prefix(std::min(comma + 1, dims.size()));
  }
  return type;
}

}  // namespace onw
