// Which way a connection took, for messages: libcurl chooses the proxy, and says which.
#pragma once

#include <string>
#include <string_view>

namespace onw {

class Route {
 public:
  // A line of what libcurl tells of its work.
  void hear(std::string_view line);

  bool through_proxy() const { return !variable_.empty(); }
  const std::string& variable() const { return variable_; }  // HTTPS_PROXY, ...
  const std::string& proxy() const { return proxy_; }        // without name and password

  // "directly (no proxy is set)", "directly (as NO_PROXY says)", "through the proxy http://proxy:3128 (HTTPS_PROXY)".
  std::string text() const;

 private:
  std::string variable_;
  std::string proxy_;
};

// Without what stands before an @ in the addresses in it: names and passwords.
std::string without_secrets(std::string_view text);

}  // namespace onw
