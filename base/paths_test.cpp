#include "base/paths.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace onw {
namespace {

// Sets variables for a test (none: unset) and puts them back.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::optional<std::string>>& values) {
    for (const auto& [name, value] : values) {
      const char* old = std::getenv(name.c_str());
      old_[name] = old == nullptr ? std::nullopt : std::optional<std::string>(old);
      set(name, value);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : old_) set(name, value);
  }

 private:
  static void set(const std::string& name, const std::optional<std::string>& value) {
    value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> old_;
};

TEST(Paths, our_own_variable_comes_first) {
  const Environment e({{"ONW_HOME", "/models/模型 é"}, {"XDG_DATA_HOME", "/data"}});
  EXPECT_EQ(home_folder(), "/models/模型 é");
}

TEST(Paths, then_the_desktop_s) {
  const Environment e(
      {{"ONW_HOME", std::nullopt}, {"XDG_DATA_HOME", "/data"}, {"ONW_CACHE", ""}, {"XDG_CACHE_HOME", "/cache"}});
  EXPECT_EQ(home_folder(), "/data/onw");
  EXPECT_EQ(cache_folder(), "/cache/onw");
}

TEST(Paths, then_the_usual_places_in_the_home_folder) {
  const Environment e({{"ONW_HOME", std::nullopt},
                       {"XDG_DATA_HOME", "relative"},
                       {"HOME", "/home/x"},
                       {"ONW_CACHE", std::nullopt},
                       {"XDG_CACHE_HOME", std::nullopt}});
  EXPECT_EQ(home_folder(), "/home/x/.local/share/onw");
  EXPECT_EQ(cache_folder(), "/home/x/.cache/onw");
}

TEST(Paths, are_absolute_whatever_the_variable_says) {
  const Environment e({{"ONW_HOME", "models"}});
  EXPECT_TRUE(home_folder().is_absolute());
}

}  // namespace
}  // namespace onw
