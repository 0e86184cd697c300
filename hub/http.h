// One HTTP download with libcurl: proxies from the environment, the system's certificates, redirects, and errors that
// say what to do.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace onw {

struct HttpRequest {
  std::string url;
  std::string token;           // sent as a bearer token, to the first host only; empty: none
  int64_t from_byte = 0;       // asks for the rest behind so many bytes
  int64_t stall_seconds = 30;  // gives up when nothing comes for so long
  int64_t connect_seconds = 20;
};

struct HttpResponse {
  int status = 0;
  std::string url;                                   // after redirects
  std::map<std::string, std::string> headers;        // lower-case names; of all responses on the way, later ones win
  std::map<std::string, std::string> first_headers;  // of the first response, which a redirect may carry
};

// Receives the body piece by piece. `status` is the final response's; false stops, as Code::cancelled.
using BodySink = std::function<bool(const HttpResponse& response, std::string_view piece)>;

struct HttpFailure {
  Error error;
  bool may_pass = false;  // another try may succeed: time-outs, refused connections, cut transfers
};

// The response, whatever its status is. `idle`, called several times a second, returns false to cancel.
tl::expected<HttpResponse, HttpFailure> http_get(const HttpRequest& request, const BodySink& sink,
                                                 const std::function<bool()>& idle = {});

// What a status of 400 or more means to a person, for `what` (a model or a file). `token`: one was sent.
Error http_status_error(const HttpResponse& response, std::string_view what, bool token);

// Whether another try may succeed: 408, 429 and 5xx.
bool status_may_pass(int status);

}  // namespace onw
