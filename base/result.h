// Errors as values. Bad input (a file, a request, a device) is a Result; our own mistakes are a CHECK.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace onw {

// What kind of thing went wrong; `message` says what, where, which limit, and what to do.
enum class Code {
  usage,             // a wrong flag or argument: exit code 2
  invalid_argument,  // a value out of its range
  not_found,         // a file, model or name that does not exist
  missing_tensor,
  truncated_file,
  bad_format,   // a file or message that breaks its own format
  unsupported,  // well formed, but not something that onw can do
  out_of_memory,
  no_space,
  io,
  network,
  digest_mismatch,
  context_overflow,  // a prompt or answer that does not fit the context
  numerics,          // non-finite logits
  cancelled,
  internal,
};

std::string_view name(Code code);

struct Error {
  Code code = Code::internal;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

using Failure = tl::unexpected<Error>;

// error(Code::io, "{}: cannot read {} bytes", path, n): a failure that converts to any Result.
template <class... Args>
Failure error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Failure(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

// The failure of a Result, to be returned from a function with another value type.
template <class T>
Failure failure(Result<T>&& result) {
  return Failure(std::move(result.error()));
}

// The same failure with "context: " before its message.
template <class T>
Failure failure(Result<T>&& result, std::string_view context) {
  return Failure(Error{result.error().code, fmt::format("{}: {}", context, result.error().message)});
}

[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace onw

// Leaves the function with the error of `result` (an lvalue Result, or an expression that gives one).
#define RETURN_IF_ERROR(result)                                                                          \
  do {                                                                                                   \
    if (auto&& onw_result = (result); !onw_result) return ::onw::Failure(std::move(onw_result.error())); \
  } while (false)

// A mistake of ours, never reachable from a file, a request or a device.
#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) ::onw::check_failed(__FILE__, __LINE__, #condition); \
  } while (false)
