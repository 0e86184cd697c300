#include "base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/file_lock.h"
#include "base/temp_folder.h"

namespace onw {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string counted(size_t bytes) {
  std::string s(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) s[i] = static_cast<char>(i * 7 + i / 251);
  return s;
}

TEST(OutputFile, writes_whole_pieces_and_the_rest_when_finished) {
  TempFolder folder;
  const std::string text = counted(OutputFile::kPieceBytes + 12345);
  auto file = OutputFile::open(folder / "a");
  ASSERT_TRUE(file);
  for (size_t at = 0; at < text.size(); at += 99999)
    ASSERT_TRUE(file->write(std::as_bytes(std::span(text).subspan(at, std::min<size_t>(99999, text.size() - at)))));
  EXPECT_EQ(file->written(), OutputFile::kPieceBytes);
  EXPECT_EQ(file->position(), static_cast<int64_t>(text.size()));
  ASSERT_TRUE(file->write_zeros(5000));
  ASSERT_TRUE(file->finish());
  EXPECT_EQ(contents(folder / "a"), text + std::string(5000, '\0'));
}

TEST(OutputFile, goes_on_behind_what_it_keeps) {
  TempFolder folder;
  folder.write("a", "keep this, not that");
  auto file = OutputFile::open(folder / "a", 10);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->write(std::as_bytes(std::span(std::string_view(" but this")))));
  ASSERT_TRUE(file->finish());
  EXPECT_EQ(contents(folder / "a"), "keep this, but this");
}

TEST(OutputFile, a_full_disk_is_an_error_that_says_so) {
  auto file = OutputFile::open("/dev/full");
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->write_zeros(10));
  const auto finished = file->finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code, Code::no_space);
  EXPECT_THAT(finished.error().message, testing::HasSubstr("Free some space"));
  EXPECT_EQ(require_free_space("/", INT64_MAX, "The model").error().code, Code::no_space);
  EXPECT_TRUE(require_free_space("/", 1, "The model"));
}

TEST(OutputFile, a_small_file_is_replaced_whole) {
  TempFolder folder;
  ASSERT_TRUE(write_file_atomically(folder / "a", "one"));
  ASSERT_TRUE(write_file_atomically(folder / "a", "two"));
  EXPECT_EQ(contents(folder / "a"), "two");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.partial"));
  EXPECT_EQ(write_file_atomically(folder / "missing" / "a", "x").error().code, Code::io);
}

TEST(FileLock, one_holder_at_a_time) {
  TempFolder folder;
  auto first = FileLock::acquire(folder / "lock");
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->held());
  EXPECT_FALSE(FileLock::try_acquire(folder / "lock")->held());
  *first = FileLock();
  EXPECT_TRUE(FileLock::try_acquire(folder / "lock")->held());
}

TEST(WriteFileAtomically, goes_through_links_and_leaves_devices_and_folders_what_they_are) {
  const TempFolder folder;
  namespace fs = std::filesystem;
  folder.write("target", "before");
  fs::create_symlink("target", folder.path() / "link");
  ASSERT_TRUE(write_file_atomically(folder.path() / "link", "after"));
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
  EXPECT_EQ(fs::file_size(folder.path() / "target"), 5);

  fs::create_symlink("/dev/null", folder.path() / "null");
  EXPECT_TRUE(write_file_atomically(folder.path() / "null", "gone"));
  EXPECT_TRUE(fs::is_character_file(folder.path() / "null"));
  fs::create_symlink("/dev/full", folder.path() / "full");
  EXPECT_FALSE(write_file_atomically(folder.path() / "full", "gone"));
  EXPECT_TRUE(fs::is_character_file(folder.path() / "full"));

  EXPECT_FALSE(write_file_atomically(folder.path(), "a folder"));
  EXPECT_FALSE(file_to_replace(folder.path() / "null"));
  for (const auto& left : fs::directory_iterator(folder.path())) EXPECT_NE(left.path().extension(), ".partial");
}

}  // namespace
}  // namespace onw
