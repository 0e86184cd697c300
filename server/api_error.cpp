#include "server/api_error.h"

#include <nlohmann/json.hpp>

namespace onw::server {
namespace {

std::string_view type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

nlohmann::json text_or_null(const std::string& text) { return text.empty() ? nlohmann::json() : nlohmann::json(text); }

}  // namespace

ApiError to_api_error(const Error& error) {
  ApiError api{.status = 400, .message = error.message};
  switch (error.code) {
    case Code::usage:
    case Code::invalid_argument:
    case Code::bad_format:
    case Code::unsupported:
      return api;
    case Code::context_overflow:
      api.code = "context_length_exceeded";
      return api;
    case Code::out_of_memory:
    case Code::cancelled:
      api.status = 503;
      return api;
    default:
      api.status = 500;
      return api;
  }
}

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0U) == 0x80U) --most;  // not within a character
  return std::string(text.substr(0, most)) + "...";
}

std::string error_json(const ApiError& error) {
  nlohmann::ordered_json body = {{"message", error.message},
                                 {"type", type_of(error.status)},
                                 {"param", text_or_null(error.param)},
                                 {"code", text_or_null(error.code)}};
  for (const auto& [name, value] : error.numbers) body[name] = value;
  // A message may quote what was wrong, bytes that are no UTF-8 included: they are mended, never thrown at.
  return nlohmann::ordered_json{{"error", std::move(body)}}.dump(-1, ' ', false,
                                                                 nlohmann::json::error_handler_t::replace);
}

HttpResponse json_response(int status, std::string body) {
  return {status, {{"Content-Type", "application/json"}}, std::move(body)};
}

HttpResponse error_response(const ApiError& error) {
  auto response = json_response(error.status, error_json(error));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 503) response.headers.emplace_back("Retry-After", "5");
  return response;
}

}  // namespace onw::server
