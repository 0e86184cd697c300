#include "base/huge_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "base/huge_files.h"
#include "base/mapped_file.h"
#include "base/memory.h"
#include "base/temp_folder.h"

namespace onw {
namespace {

// Whole huge pages of a mapping.
std::span<const std::byte> whole_pages(std::span<const std::byte> mapped) {
  const size_t before = (kHugePageBytes - reinterpret_cast<uintptr_t>(mapped.data()) % kHugePageBytes) % kHugePageBytes;
  return mapped.subspan(before, (mapped.size() - before) / kHugePageBytes * kHugePageBytes);
}

std::string numbers(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 2654435761U >> 24);
  return text;
}

TEST(HugeMemory, begins_at_a_huge_page_and_is_zero) {
  const HugeMemory memory(3 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.bytes().data()) % kHugePageBytes, 0);
  EXPECT_TRUE(std::ranges::all_of(memory.bytes(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(HugeMemory, takes_the_place_of_a_mapping_that_is_being_read) {
  const TempFolder folder;
  const std::string expected = numbers(12 << 20);
  auto file = MappedFile::open(folder.write("numbers", expected));
  ASSERT_TRUE(file);
  const auto same = [&] { return std::memcmp(file->bytes().data(), expected.data(), expected.size()) == 0; };
  std::atomic<bool> done = false, differed = false;
  std::thread reader([&] {
    while (!done) differed = differed || !same();
  });
  bool replaced = true;
  for (int round = 0; round < 8; ++round) replaced = replace_by_huge_pages(whole_pages(file->bytes())) && replaced;
  done = true;
  reader.join();
  EXPECT_FALSE(differed);
  EXPECT_TRUE(same());
  if (huge_page_mode() == "never") {
    EXPECT_FALSE(replaced);
    return;
  }
  ASSERT_TRUE(replaced);
  EXPECT_EQ(huge_page_bytes(whole_pages(file->bytes()))->anonymous,
            static_cast<int64_t>(whole_pages(file->bytes()).size()));
  std::filesystem::resize_file(file->path(), 0);  // what was moved needs the file no more
  EXPECT_EQ(std::memcmp(whole_pages(file->bytes()).data(),
                        expected.data() + (whole_pages(file->bytes()).data() - file->bytes().data()),
                        whole_pages(file->bytes()).size()),
            0);
}

}  // namespace
}  // namespace onw
