// What the system keeps of a file in memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace onw {

// Forgets the file's pages, so that the next reader starts cold; pages that someone has mapped stay. Advice only.
void drop_from_page_cache(const std::filesystem::path& file);

// Gives the pages of a file that is mapped there, read-only, back to the system, which reads them again when they are
// touched. The ends are rounded inwards to whole pages.
void drop_mapped_pages(std::span<const std::byte> mapped);

}  // namespace onw
