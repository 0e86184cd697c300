#include "base/address_range.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_folder.h"

namespace onw {
namespace {

TEST(AddressRange, holds_a_file_and_memory_behind_it_at_one_pointer) {
  const TempFolder folder;
  const std::string text(5000, 'x');
  std::ofstream(folder / "file") << text;
  auto range = AddressRange::reserve(1 << 20);
  ASSERT_TRUE(range) << range.error().message;
  ASSERT_TRUE(range->map_file(folder / "file", 0, text.size()));
  const auto memory = range->add_memory(2 * kPageBytes, 100);
  ASSERT_TRUE(memory) << memory.error().message;
  (*memory)[99] = std::byte{7};
  const AddressRange moved = std::move(*range);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(moved.data()), text.size()), text);
  EXPECT_EQ(moved.data()[2 * kPageBytes + 99], std::byte{7});
  moved.drop_file_pages(0, text.size());
  EXPECT_EQ(moved.data()[4999], std::byte{'x'});
}

TEST(AddressRange, a_file_that_is_gone_is_an_error_with_its_name) {
  auto range = AddressRange::reserve(1 << 20);
  ASSERT_TRUE(range);
  const auto mapped = range->map_file("/no/such/file", 0, 10);
  ASSERT_FALSE(mapped);
  EXPECT_NE(mapped.error().message.find("/no/such/file"), std::string::npos);
}

TEST(AddressRange, more_addresses_than_there_are_is_an_error) {
  const auto range = AddressRange::reserve(size_t{1} << 62);
  ASSERT_FALSE(range);
  EXPECT_EQ(range.error().code, Code::out_of_memory);
}

}  // namespace
}  // namespace onw
