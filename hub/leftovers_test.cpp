#include "hub/leftovers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file_lock.h"
#include "base/temp_folder.h"

namespace onw {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Home {
  Home() {
    folder.write("models/whole/engine.json", "{}");
    folder.write("models/half.partial/weights.safetensors", "1234");
    folder.write("models/half.lock", "");
    folder.write("models/org/part.v2.partial/journal", "12");
    folder.write("models/org/.removed-gone/engine.json", "{}");
    folder.write("models/.removed-x/weights.safetensors", "123");
    folder.write("downloads/org--name/model.safetensors.part", "12345678");
    folder.write("downloads/org--name.lock", "");
    folder.write("downloads/plain/config.json", "1");
  }
  const fs::path& path() const { return folder.path(); }
  std::vector<std::string> shown() const {
    std::vector<std::string> all;
    for (const auto& l : list_leftovers(path()))
      all.push_back(fmt::format("{} {} {}{}", l.name, name(l.kind), l.bytes, l.in_use ? " in use" : ""));
    return all;
  }
  TempFolder folder;
};

TEST(Leftovers, of_pulls_conversions_and_removals_are_listed_by_the_models_name) {
  const Home home;
  EXPECT_THAT(home.shown(), ElementsAre("half conversion 4", "org/gone removal 2", "org/name download 8",
                                        "org/part.v2 conversion 2", "plain download 1", "x removal 3"));
  EXPECT_THAT(list_leftovers("/nowhere/at/all"), IsEmpty());
}

TEST(Leftovers, are_removed_with_their_locks_and_nothing_else_is) {
  const Home home;
  EXPECT_EQ(remove_leftovers(home.path(), "org/name").value(), 8);
  EXPECT_EQ(remove_leftovers(home.path(), "half").value(), 4);
  EXPECT_EQ(remove_leftovers(home.path(), "whole").value(), 0);
  for (const char* gone :
       {"downloads/org--name", "downloads/org--name.lock", "models/half.partial", "models/half.lock"})
    EXPECT_FALSE(fs::exists(home.path() / gone)) << gone;
  for (const char* there : {"models/whole/engine.json", "downloads/plain", "models/org/part.v2.partial"})
    EXPECT_TRUE(fs::exists(home.path() / there)) << there;
}

TEST(Leftovers, that_an_onw_works_on_stay) {
  const Home home;
  for (const auto& [lock, model, folder] :
       {std::tuple{"models/half.lock", "half", "models/half.partial"},
        std::tuple{"downloads/org--name.lock", "org/name", "downloads/org--name"}}) {
    const auto held = FileLock::acquire(home.path() / lock);
    ASSERT_TRUE(held && held->held());
    const auto removed = remove_leftovers(home.path(), model);
    ASSERT_FALSE(removed);
    EXPECT_THAT(removed.error().message, HasSubstr("in use"));
    EXPECT_TRUE(fs::exists(home.path() / folder));
    EXPECT_THAT(home.shown(), testing::Contains(testing::EndsWith("in use")));
  }
  EXPECT_THAT(home.shown(), testing::Not(testing::Contains(testing::EndsWith("in use"))));
}

}  // namespace
}  // namespace onw
