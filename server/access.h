// Who may talk to the server: the Host header (against DNS rebinding), the Origin (against other web pages), the key.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/http.h"

namespace onw::server {

struct AccessRules {
  bool loopback = true;                      // listens on this machine alone: then only its own names are Hosts
  std::vector<std::string> allowed_hosts;    // further names, without a port
  std::vector<std::string> allowed_origins;  // "https://example.org"; "*": all
  std::string api_key;                       // empty: none
};

class Access {
 public:
  explicit Access(AccessRules rules) : rules_(std::move(rules)) {}

  // Why the request is not answered: 400 or 403. Says nothing of the key.
  std::optional<ApiError> refuse(const HttpRequest& request) const;

  // 401 where a key is set and the request does not carry it.
  std::optional<ApiError> refuse_without_key(const HttpRequest& request) const;

  // The headers that let the page behind an allowed Origin read the answer; credentials (cookies) never are.
  Headers cors(const HttpRequest& request) const;

  // The answer to OPTIONS: what a browser asks before it lets a page send the real request.
  HttpResponse preflight(const HttpRequest& request) const;

 private:
  bool host_allowed(std::string_view host) const;
  bool origin_allowed(std::string_view origin) const;

  AccessRules rules_;
};

// "a.example:80" -> "a.example", "[::1]:80" -> "::1", in lower case, without a final dot; empty where that is no host.
std::string host_name(std::string_view host);

// Whether `name` is an address rather than a name, IPv6 without its brackets.
bool is_ip_address(std::string_view name);

}  // namespace onw::server
