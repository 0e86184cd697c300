// What went wrong with a request, as clients of this API expect to read it.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "base/result.h"
#include "server/http.h"

namespace onw::server {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;                                     // the field that is to blame; empty: null
  std::string code;                                      // for programs; empty: null
  std::vector<std::pair<std::string, int64_t>> numbers;  // further members, such as n_prompt
};

template <class T>
using ApiResult = tl::expected<T, ApiError>;

// A failure of the other rooms: a fault of the request is 400, of the server 500.
ApiError to_api_error(const Error& error);

// The first `most` bytes, with "..." where there are more: what an error quotes of a request.
std::string shortened(std::string_view text, size_t most = 100);

// {"error": {...}}
std::string error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);
HttpResponse json_response(int status, std::string body);

}  // namespace onw::server
