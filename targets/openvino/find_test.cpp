#include "targets/openvino/find.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_folder.h"
#include "targets/openvino/api.h"
#include "targets/openvino/runtime.h"

namespace onw::openvino {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

fs::path put(const fs::path& file) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << "no library";
  return file;
}

TEST(FindOpenVino, takes_the_folder_that_is_given_whatever_kind_it_is) {
  for (const char* below : {"", "libs", "openvino/libs", "runtime/lib/intel64"}) {
    const TempFolder folder;
    const fs::path library = put(folder / below / "libopenvino_c.so.2641");
    const auto found = find_library({.given = (folder / "").string()});
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(fs::equivalent(*found, library)) << below;
  }
}

TEST(FindOpenVino, a_given_folder_without_it_is_an_error_even_where_others_have_it) {
  const TempFolder folder;
  put(folder / "python/lib/python3.11/site-packages/openvino/libs/libopenvino_c.so.2641");
  const auto found = find_library({.given = "/no/such/folder", .pythons = {folder / "python"}});
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message, HasSubstr("ONW_OPENVINO_DIR is /no/such/folder"));
  EXPECT_THAT(found.error().message, HasSubstr("pip install openvino"));
}

TEST(FindOpenVino, takes_the_wheel_of_a_python_before_an_installed_package) {
  const TempFolder folder;
  const fs::path wheel = put(folder / "python/lib/python3.11/site-packages/openvino/libs/libopenvino_c.so.2641");
  put(folder / "intel/runtime/lib/intel64/libopenvino_c.so");
  const auto found = find_library({.pythons = {folder / "none", folder / "python"}, .folders = {folder / "intel"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, wheel);
}

TEST(FindOpenVino, takes_the_newest_of_several) {
  const TempFolder folder;
  put(folder / "libopenvino_c.so.2500");
  const fs::path newer = put(folder / "libopenvino_c.so.2641");
  EXPECT_TRUE(fs::equivalent(*find_library({.folders = {folder / ""}}), newer));
}

TEST(FindOpenVino, says_how_to_get_it_where_there_is_none) {
  const auto found = find_library({});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::not_found);
  EXPECT_THAT(found.error().message, HasSubstr("pip install openvino"));
  EXPECT_THAT(found.error().message, HasSubstr("ONW_OPENVINO_DIR"));
}

TEST(OpenVinoLibrary, that_is_none_is_an_error_that_says_how_to_get_one) {
  const TempFolder folder;
  const auto broken = Runtime::load(put(folder / "libopenvino_c.so"));
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, Code::unsupported);
  EXPECT_THAT(broken.error().message, HasSubstr("pip install openvino"));
  const auto missing = Runtime::load(folder / "libopenvino_c.so.7");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::not_found);
}

TEST(OpenVinoLibrary, without_the_functions_is_named_with_the_first_that_it_lacks) {
  const auto other = load_functions("libm.so.6");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("libm.so.6: has no function ov_get_openvino_version"));
}

TEST(OpenVinoLibrary, releases_are_read_from_versions) {
  EXPECT_EQ(release_of("2026.4.1-21967-abc"), std::pair(2026, 4));
  EXPECT_EQ(release_of("2025.0"), std::pair(2025, 0));
  for (const char* none : {"", "custom", "2026", "2026.", "x2026.1"}) EXPECT_EQ(release_of(none), std::pair(0, 0));
}

}  // namespace
}  // namespace onw::openvino
