#include "server/request_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "graph/json.h"

namespace onw::server {
namespace {

using nlohmann::json;

// Reads up to the first fault, and keeps its place.
struct FaultFinder : nlohmann::json_sax<json> {
  int depth = 0;
  size_t position = 0;
  std::string_view why;
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(size_t) override { return ++depth <= kMaxJsonDepth; }
  bool start_array(size_t) override { return ++depth <= kMaxJsonDepth; }
  bool end_object() override { return --depth >= 0; }
  bool end_array() override { return --depth >= 0; }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception& e) override {
    position = at;
    if (dynamic_cast<const json::out_of_range*>(&e) != nullptr) why = ": the number is out of range";
    if (std::string_view(e.what()).find("UTF-8") != std::string_view::npos) why = ": the text is not UTF-8";
    return false;
  }
};

std::string fault_of(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return "the body is empty: send a JSON object with messages";
  FaultFinder fault;
  json::sax_parse(body.begin(), body.end(), &fault);
  if (fault.depth > kMaxJsonDepth) return fmt::format("the body is nested deeper than {} levels", kMaxJsonDepth);
  const auto at = std::min(fault.position, body.size());
  return fmt::format("the body is not valid JSON at byte {} of {}{}", at, body.size(), fault.why);
}

}  // namespace

ApiResult<json> parse_body(std::string_view body) {
  auto parsed = parse_json(body, "the body");
  if (!parsed) return tl::unexpected(ApiError{.message = fault_of(body)});
  return std::move(*parsed);
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.substr(0, kMark.size()) == kMark ? text.substr(kMark.size()) : text;
}

}  // namespace onw::server
