#include "hub/local.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temp_folder.h"

namespace onw {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(const std::filesystem::path& models) {
  std::vector<std::string> names;
  const auto found = list_models(models);
  for (const auto& model : found.value()) names.push_back(model.name);
  return names;
}

struct Store {
  Store() {
    folder.write("plain/engine.json", "{}");
    folder.write("plain/weights.safetensors", "12345678");
    folder.write("org/Name 模型/engine.json", "{}");
    folder.write("half/weights.safetensors", "123");
    folder.write("org/half/weights.safetensors", "123");
    folder.write(".removed-x/engine.json", "{}");
    folder.write("file", "");
  }
  const std::filesystem::path& path() const { return folder.path(); }
  TempFolder folder;
};

TEST(LocalModels, are_the_finished_folders_by_name) {
  const Store store;
  const auto models = list_models(store.path());
  ASSERT_TRUE(models);
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0].name, "org/Name 模型");
  EXPECT_EQ((*models)[1].name, "plain");
  EXPECT_EQ((*models)[1].bytes, 10);
}

TEST(LocalModels, of_a_store_that_is_not_there_are_none) {
  EXPECT_TRUE(list_models("/nowhere/at/all").value().empty());
}

TEST(LocalModels, are_found_by_name_however_written_where_only_one_fits) {
  const Store store;
  EXPECT_EQ(find_model(store.path(), "plain")->name, "plain");
  EXPECT_EQ(find_model(store.path(), "PLAIN")->name, "plain");
  EXPECT_EQ(find_model(store.path(), "name 模型")->name, "org/Name 模型");
  store.folder.write("other/name 模型/engine.json", "{}");
  const auto both = find_model(store.path(), "NAME 模型");
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().code, Code::invalid_argument);
  store.folder.write("Small.Q4_1/engine.json", "{}");
  EXPECT_EQ(find_model(store.path(), "small")->name, "Small.Q4_1");
  EXPECT_FALSE(find_model(store.path(), "smal"));
  const auto none = find_model(store.path(), "half");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("plain"));
  EXPECT_THAT(none.error().message, testing::Not(HasSubstr("onw pull half"))) << "no hub has a model of that name";
  EXPECT_THAT(find_model(store.path(), "org/other").error().message, HasSubstr("onw pull org/other"));
}

TEST(RemoveModel, removes_all_of_it_and_nothing_else) {
  const Store store;
  EXPECT_EQ(remove_model(store.path(), "plain").value(), 10);
  EXPECT_THAT(names(store.path()), ElementsAre("org/Name 模型"));
  EXPECT_FALSE(std::filesystem::exists(store.path() / "plain"));
  ASSERT_TRUE(remove_model(store.path(), "org/Name 模型"));
  EXPECT_TRUE(std::filesystem::exists(store.path() / "org" / "half" / "weights.safetensors"));
}

TEST(RemoveModel, refuses_names_that_lead_elsewhere) {
  const Store store;
  for (const auto* name : {"..", "../plain", "", ".", "/", "org/../plain", "a/b/c", ".removed-x", "half"})
    EXPECT_FALSE(remove_model(store.path(), name)) << name;
  EXPECT_EQ(names(store.path()).size(), 2u);
}

TEST(RemoveModel, takes_a_link_away_and_not_what_it_leads_to) {
  const Store store;
  const TempFolder outside;
  outside.write("engine.json", "{}");
  std::filesystem::create_directory_symlink(outside.path(), store.path() / "linked");
  ASSERT_TRUE(remove_model(store.path(), "linked"));
  EXPECT_FALSE(std::filesystem::exists(store.path() / "linked"));
  EXPECT_TRUE(std::filesystem::exists(outside.path() / "engine.json"));
}

}  // namespace
}  // namespace onw
