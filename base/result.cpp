#include "base/result.h"

#include <cstdio>
#include <cstdlib>

namespace onw {

std::string_view name(Code code) {
  switch (code) {
    case Code::usage:
      return "usage";
    case Code::invalid_argument:
      return "invalid_argument";
    case Code::not_found:
      return "not_found";
    case Code::missing_tensor:
      return "missing_tensor";
    case Code::truncated_file:
      return "truncated_file";
    case Code::bad_format:
      return "bad_format";
    case Code::unsupported:
      return "unsupported";
    case Code::out_of_memory:
      return "out_of_memory";
    case Code::no_space:
      return "no_space";
    case Code::io:
      return "io";
    case Code::network:
      return "network";
    case Code::digest_mismatch:
      return "digest_mismatch";
    case Code::context_overflow:
      return "context_overflow";
    case Code::numerics:
      return "numerics";
    case Code::cancelled:
      return "cancelled";
    case Code::internal:
      return "internal";
  }
  return "unknown";
}

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace onw
