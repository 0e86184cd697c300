// SHA-256, by OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace onw {

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  std::array<std::byte, 32> finish();  // once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::array<std::byte, 32> sha256(std::span<const std::byte> bytes);
inline std::array<std::byte, 32> sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }
std::string to_hex(std::span<const std::byte> bytes);  // lower case

}  // namespace onw
