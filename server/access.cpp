#include "server/access.h"

#include <algorithm>
#include <charconv>

namespace onw::server {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

bool is_ipv4(std::string_view text) {
  int parts = 0;
  while (parts < 4) {
    int value = -1;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    const auto length = static_cast<size_t>(end - text.data());
    if (failure != std::errc() || value < 0 || value > 255 || length > 3) return false;
    text.remove_prefix(length);
    if (++parts == 4) return text.empty();
    if (text.empty() || text.front() != '.') return false;
    text.remove_prefix(1);
  }
  return false;
}

bool is_ipv6(std::string_view text) {
  return std::count(text.begin(), text.end(), ':') >= 2 &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_hex(c) || c == ':' || c == '.'; });
}

bool is_loopback(std::string_view name) {
  return name == "localhost" || name == "::1" || (is_ipv4(name) && name.substr(0, 4) == "127.");
}

// Takes as long for a wrong key as for the right one.
bool equal_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  return difference == 0;
}

bool is_token_list(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == ',' ||
           c == ' ';
  });
}

}  // namespace

bool is_ip_address(std::string_view name) { return is_ipv4(name) || is_ipv6(name); }

std::string host_name(std::string_view host) {
  std::string_view name = host;
  std::string_view port;
  if (!host.empty() && host.front() == '[') {
    const auto end = host.find(']');
    if (end == std::string_view::npos) return {};
    name = host.substr(1, end - 1);
    port = host.substr(end + 1);
    if (!is_ipv6(name) || (!port.empty() && port.front() != ':')) return {};
  } else if (const auto colon = host.find(':'); colon != std::string_view::npos) {
    name = host.substr(0, colon);
    port = host.substr(colon);
  }
  if (!port.empty() && !std::all_of(port.begin() + 1, port.end(), is_digit)) return {};
  if (!name.empty() && name.back() == '.') name.remove_suffix(1);
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

// A page of a stranger can make its own name point at this machine, but not make the browser send another Host: so
// names must be known. An address cannot be re-pointed; it is enough that we listen there.
bool Access::host_allowed(std::string_view host) const {
  const auto name = host_name(host);
  if (name.empty()) return false;
  if (is_loopback(name)) return true;
  if (!rules_.loopback && is_ip_address(name)) return true;
  return std::any_of(rules_.allowed_hosts.begin(), rules_.allowed_hosts.end(),
                     [&](const std::string& allowed) { return host_name(allowed) == name; });
}

// Pages served from this machine, those that were allowed, and the server's own page under an allowed name.
bool Access::origin_allowed(std::string_view origin) const {
  for (const auto& allowed : rules_.allowed_origins)
    if (allowed == "*" || allowed == origin) return true;
  const auto scheme = origin.find("://");
  if (scheme == std::string_view::npos) return false;
  const auto kind = origin.substr(0, scheme);
  return (kind == "http" || kind == "https") && host_allowed(origin.substr(scheme + 3));
}

std::optional<ApiError> Access::refuse(const HttpRequest& request) const {
  if (request.count("host") != 1) return ApiError{.status = 400, .message = "a request needs exactly one Host header"};
  const auto host = request.header("host");
  if (!host_allowed(host))
    return ApiError{.status = 403,
                    .message = fmt::format("this server does not answer under the name '{}'. If it should, start it "
                                           "with --allow-host {}",
                                           host, host_name(host)),
                    .code = "host_not_allowed"};
  const auto origin = request.header("origin");
  const bool reads = request.method == "GET" || request.method == "HEAD" || request.method == "OPTIONS";
  if (!origin.empty() && !reads && !origin_allowed(origin))
    return ApiError{.status = 403,
                    .message = fmt::format("pages of '{}' may not use this server. If they should, start it with "
                                           "--allow-origin {}",
                                           origin, origin),
                    .code = "origin_not_allowed"};
  return std::nullopt;
}

std::optional<ApiError> Access::refuse_without_key(const HttpRequest& request) const {
  if (rules_.api_key.empty()) return std::nullopt;
  constexpr std::string_view kBearer = "Bearer ";
  const auto given = request.header("authorization");
  if (given.substr(0, kBearer.size()) == kBearer && equal_secret(given.substr(kBearer.size()), rules_.api_key))
    return std::nullopt;
  return ApiError{.status = 401,
                  .message = "the key is missing or wrong. Send it as 'Authorization: Bearer KEY'",
                  .code = "invalid_api_key"};
}

Headers Access::cors(const HttpRequest& request) const {
  const auto origin = request.header("origin");
  if (origin.empty()) return {};
  Headers headers = {{"Vary", "Origin"}};
  if (origin_allowed(origin)) headers.emplace_back("Access-Control-Allow-Origin", std::string(origin));
  return headers;
}

HttpResponse Access::preflight(const HttpRequest& request) const {
  HttpResponse response{204, cors(request), ""};
  const auto origin = request.header("origin");
  if (origin.empty() || !origin_allowed(origin)) return response;
  const auto wanted = request.header("access-control-request-headers");
  const bool plain = !wanted.empty() && is_token_list(wanted);
  response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  response.headers.emplace_back("Access-Control-Allow-Headers",
                                plain ? std::string(wanted) : "authorization, content-type");
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  if (request.header("access-control-request-private-network") == "true")
    response.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  return response;
}

}  // namespace onw::server
