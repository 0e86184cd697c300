#include "server/request_json.h"

#include <nlohmann/json.hpp>

#include "graph/json.h"

namespace onw::server {
namespace {

std::string text_of(const JsonFault& fault, std::string_view body) {
  if (fault.too_deep) return fmt::format("the body is nested deeper than {} levels", kMaxJsonDepth);
  return fmt::format("the body is not valid JSON at byte {} of {}: {}", fault.position, body.size(), fault.why);
}

}  // namespace

ApiResult<nlohmann::json> parse_body(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return tl::unexpected(ApiError{.message = "the body is empty: send a JSON object with messages"});
  auto parsed = parse_json(body, "the body");
  if (!parsed) return tl::unexpected(ApiError{.message = text_of(json_fault(body).value_or(JsonFault{}), body)});
  return std::move(*parsed);
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.substr(0, kMark.size()) == kMark ? text.substr(kMark.size()) : text;
}

}  // namespace onw::server
