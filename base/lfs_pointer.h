// Git LFS leaves a small text file where a download without LFS should have put the real one.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace onw {

inline bool is_lfs_pointer(std::span<const std::byte> bytes) {
  constexpr std::string_view kStart = "version https://git-lfs.github.com/spec/";
  return bytes.size() >= kStart.size() && std::memcmp(bytes.data(), kStart.data(), kStart.size()) == 0;
}

}  // namespace onw
