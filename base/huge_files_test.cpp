#include "base/huge_files.h"

#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "base/memory.h"
#include "base/temp_folder.h"

namespace onw {
namespace {

TEST(HugeFiles, the_share_is_one_of_the_whole_and_the_probe_is_gone_afterwards) {
  const TempFolder folder;
  const auto share = huge_share_of_files(folder.path());
  if (!share) GTEST_SKIP() << "this system does not tell how files are mapped";
  EXPECT_GE(*share, 0);
  EXPECT_LE(*share, 1);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(HugeFiles, a_folder_that_takes_no_file_gives_no_answer) { EXPECT_FALSE(huge_share_of_files("/nowhere/at/all")); }

TEST(HugeFiles, a_small_file_has_none) {
  const TempFolder folder;
  const auto file = MappedFile::open(folder.write("small", "text"));
  ASSERT_TRUE(file);
  EXPECT_EQ(huge_page_bytes(file->bytes()).value_or(HugePageBytes{}).file, 0);
}

TEST(HugePageUse, is_at_most_what_the_machine_has) {
  const HugePageUse use = huge_page_use();
  for (const int64_t bytes : {use.anonymous_bytes, use.cached_file_bytes, use.mapped_file_bytes}) {
    EXPECT_GE(bytes, -1);
    EXPECT_LE(bytes, total_memory_bytes());
  }
}

}  // namespace
}  // namespace onw
