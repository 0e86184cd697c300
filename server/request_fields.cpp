#include "server/request_fields.h"

#include <fmt/format.h>

namespace onw::server {
namespace {

std::string replaced(std::string_view text, char from, std::string_view to) {
  std::string out;
  for (const char c : text) out += c == from ? std::string(to) : std::string(1, c);
  return out;
}

std::string type_text(const RequestField& field) {
  const bool number = field.type == "number" || field.type == "integer";
  const bool any = field.range.max >= kSeedRange.max;
  return number && !any ? fmt::format("{} {}", field.type, range_text(field.range)) : std::string(field.type);
}

std::string row_text(const RequestField& f) {
  switch (f.treatment) {
    case Treatment::honoured:
      return fmt::format("| `{}` | {} | {} | {} |\n", f.name, type_text(f), f.fallback, f.meaning);
    case Treatment::refused:
      return fmt::format("| `{}` | {} | {} |\n", f.name,
                         f.type.empty() ? "" : fmt::format("`{}`", replaced(f.type, '|', "`, `")), f.meaning);
    case Treatment::ignored:
      return fmt::format("| `{}` | {} |\n", f.name, f.meaning);
  }
  return {};
}

std::string rows(Treatment treatment) {
  std::string text;
  for (const auto& field : kRequestFields)
    if (field.treatment == treatment) text += row_text(field);
  return text;
}

}  // namespace

std::string request_fields_markdown() {
  return "| honoured | type and limits | default | meaning |\n|---|---|---|---|\n" + rows(Treatment::honoured) +
         "\n| refused | but for | why |\n|---|---|---|\n" + rows(Treatment::refused) +
         "\n| ignored | because |\n|---|---|\n" + rows(Treatment::ignored);
}

}  // namespace onw::server
