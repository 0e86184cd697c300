// Digests by OpenSSL, fed piece by piece.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace onw {

class Digest {
 public:
  enum class Kind { sha256, sha1 };

  explicit Digest(Kind kind = Kind::sha256);
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  ~Digest();

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  std::string hex();  // lower case; once, at the end

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Of bytes or a text at once, in lower-case hex.
inline std::string sha256_hex(std::span<const std::byte> bytes) {
  Digest digest;
  digest.add(bytes);
  return digest.hex();
}
inline std::string sha256_hex(std::string_view text) { return sha256_hex(std::as_bytes(std::span(text))); }

}  // namespace onw
