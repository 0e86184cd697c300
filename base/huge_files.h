// Whether mapped files lie in huge pages: a file system must hold them so, and the system must map them so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

namespace onw {

// Bytes that lie in huge pages now, of the mapping in which `memory` begins.
struct HugePageBytes {
  int64_t file = 0;
  int64_t anonymous = 0;
};

// None where the system does not say.
std::optional<HugePageBytes> huge_page_bytes(std::span<const std::byte> memory);

// The share, 0 to 1, of a file in `folder` that is mapped in huge pages: tried with one of 16 MiB, which is gone
// afterwards. None where nothing can be written there, or the system does not say.
std::optional<double> huge_share_of_files(const std::filesystem::path& folder);

}  // namespace onw
