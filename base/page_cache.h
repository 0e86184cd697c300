// What the system keeps of a file in memory.
#pragma once

#include <filesystem>

namespace onw {

// Forgets the file's pages, so that the next reader starts cold; pages that someone has mapped stay. Advice only.
void drop_from_page_cache(const std::filesystem::path& file);

}  // namespace onw
