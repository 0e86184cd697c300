#include "server/http_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace onw::server {
namespace {

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Payload Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Other";
  }
}

bool safe_in_header(std::string_view value) {
  return std::none_of(value.begin(), value.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

}  // namespace

std::string response_head(const HttpResponse& response, std::string_view framing, bool keep_alive) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason(response.status));
  for (const auto& [name, value] : response.headers)
    if (safe_in_header(value)) text += fmt::format("{}: {}\r\n", name, value);
  text += framing;
  text += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return text;
}

std::string_view HttpRequest::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers)
    if (name == lower_case_name) return value;
  return {};
}

int HttpRequest::count(std::string_view lower_case_name) const {
  return static_cast<int>(
      std::count_if(headers.begin(), headers.end(), [&](const auto& h) { return h.first == lower_case_name; }));
}

}  // namespace onw::server
