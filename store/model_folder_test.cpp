#include "store/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/temp_folder.h"
#include "graph/json.h"
#include "store/test_weights.h"

namespace onw {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

void flip_byte(const fs::path& path, int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char c = static_cast<char>(file.get() ^ 1);
  file.seekp(at);
  file.put(c);
}

TEST(ModelFolder, opens_what_the_writer_finished) {
  TempFolder folder;
  ASSERT_TRUE(make_folder(folder / "m/", small_units()));
  EXPECT_TRUE(is_model_folder(folder / "m"));
  EXPECT_FALSE(fs::exists(folder / "m.partial"));
  EXPECT_FALSE(fs::exists(folder / "m.lock"));
  EXPECT_FALSE(fs::exists(folder / "m/journal"));
  const auto model = ModelFolder::open(folder / "m");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->engine().family, "llama");
  EXPECT_EQ(model->engine().stop_ids, (std::vector<int64_t>{2, 7}));
  EXPECT_EQ(model->engine().generation.temperature, 0.6);
  EXPECT_EQ(model->engine().provenance.licence, "apache-2.0");
  EXPECT_EQ(model->config()["model_type"], "llama");
  EXPECT_EQ(model->weight("l.up")->format, WeightFormat::q4g64);
  EXPECT_EQ(*model->digest(), model->weights().digest());
  EXPECT_TRUE(model->check_deep());
}

TEST(ModelFolder, damage_is_seen_at_the_start_or_by_the_deep_check) {
  TempFolder folder;
  ASSERT_TRUE(make_folder(folder / "m", small_units()));
  const auto good = ModelFolder::open(folder / "m");
  ASSERT_TRUE(good);
  // The file is smaller than the sampled blocks: any flip is seen. Then without samples: the deep check sees it.
  flip_byte(folder / "m/weights.safetensors", good->weights().bytes() / 2);
  const auto opened = ModelFolder::open(folder / "m");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::digest_mismatch);
  const auto deep = good->check_deep();
  ASSERT_FALSE(deep);
  EXPECT_THAT(deep.error().message, HasSubstr(good->engine().files.at("weights.safetensors").sha256));
  EXPECT_FALSE(good->digest());  // the modification time changed, so the digest is not trusted
}

TEST(ModelFolder, a_digest_is_read_anew_where_the_time_of_the_file_changed) {
  TempFolder folder;
  ASSERT_TRUE(make_folder(folder / "m", small_units()));
  fs::last_write_time(folder / "m/weights.safetensors", fs::file_time_type::clock::now() + std::chrono::hours(1));
  const auto model = ModelFolder::open(folder / "m");
  ASSERT_TRUE(model);
  EXPECT_EQ(*model->digest(), model->engine().files.at("weights.safetensors").sha256);
}

TEST(ModelFolder, refuses_what_is_no_model_and_says_what_to_do) {
  TempFolder folder;
  EXPECT_THAT(ModelFolder::open(folder.path()).error().message, HasSubstr("onw convert"));
  ASSERT_TRUE(make_folder(folder / "m", small_units()));
  const auto engine = read_json_file(folder / "m/engine.json");
  ASSERT_TRUE(engine);
  const auto with = [&](const char* pointer, nlohmann::json value) {
    nlohmann::json changed = *engine;
    changed[nlohmann::json::json_pointer(pointer)] = std::move(value);
    folder.write("m/engine.json", changed.dump());
    const auto opened = ModelFolder::open(folder / "m");
    return opened ? "accepted" : opened.error().message;
  };
  EXPECT_THAT(with("/format_version", 2), HasSubstr("Update onw"));
  EXPECT_THAT(with("/format_version", nullptr), HasSubstr("format_version"));
  EXPECT_THAT(with("/weights/embed/format", "q9"), HasSubstr("'embed' has the format 'q9'"));
  EXPECT_THAT(with("/weights/embed/shape", {1LL << 40, 1LL << 40}), HasSubstr("2^44"));
  EXPECT_THAT(with("/weights/embed/shape", {-1, 64}), HasSubstr("2^44"));
  EXPECT_THAT(with("/weights/embed/shape", {37, 65}), HasSubstr("multiple of 32"));
  EXPECT_THAT(with("/weights/embed/shape", {37, 128}), HasSubstr("engine.json says"));
  EXPECT_THAT(with("/files", nlohmann::json::object()), HasSubstr("no digest"));
  EXPECT_THAT(with("/files/weights.safetensors/bytes", 7), HasSubstr("engine.json says 7"));
  EXPECT_THAT(with("/weights", nullptr), HasSubstr("missing"));
  EXPECT_EQ(with("/family", "llama"), "accepted");
  for (const char* key : {"layers", "hidden", "vocabulary", "max_context"})
    for (const nlohmann::json& wrong :
         {nlohmann::json(-1), nlohmann::json(0), nlohmann::json(1LL << 40), nlohmann::json()})
      EXPECT_THAT(with((std::string("/dimensions/") + key).c_str(), wrong),
                  HasSubstr(std::string("'dimensions.") + key + "'"));
  EXPECT_THAT(with("/dimensions/hidden", "64"), HasSubstr("'hidden' is \"64\", expected a whole number"));
  EXPECT_THAT(with("/stop_ids", {1 << 30}), HasSubstr("'stop_ids' holds 1073741824"));
  EXPECT_THAT(with("/stop_ids", {-1}), HasSubstr("'stop_ids' holds -1"));
  EXPECT_THAT(with("/generation/temperature", "hot"), HasSubstr("'temperature' is \"hot\""));
}

TEST(EngineJson, of_nothing_is_read_as_it_was_written) {
  const EngineInfo nothing{.family = "f", .layers = 1, .hidden = 64, .vocabulary = 2, .max_context = 3};
  const auto again = parse_engine(to_json(nothing), "written");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(again->files.empty() && again->weights.empty());
  EXPECT_EQ(again->family, "f");
}

TEST(FolderWriter, does_not_touch_a_folder_that_exists_unless_told) {
  TempFolder folder;
  ASSERT_TRUE(make_folder(folder / "m", small_units()));
  EXPECT_EQ(make_folder(folder / "m", small_units()).error().code, Code::usage);
  auto writer = FolderWriter::begin(folder / "m", small_units(Layout::tiles), "test", /*replace=*/true);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(write_units(writer->weights(), small_units(Layout::tiles), 5));
  ASSERT_TRUE(writer->write("config.json", "{}"));
  ASSERT_TRUE(writer->finish({.family = "new", .layers = 1, .hidden = 64, .vocabulary = 37, .max_context = 128}));
  EXPECT_EQ(ModelFolder::open(folder / "m")->engine().family, "new");
  EXPECT_FALSE(fs::exists(folder / "m.old"));
}

TEST(FolderWriter, replaces_a_model_folder_and_nothing_else) {
  TempFolder folder;
  folder.write("notes/precious.txt", "mine");
  folder.write("published/config.json", "{}");
  folder.write("file.gguf", "GGUF");
  ASSERT_TRUE(make_folder(folder / "with_more", small_units()));
  folder.write("with_more/source/config.json", "{}");
  ASSERT_TRUE(make_folder(folder / "m", small_units()));
  fs::create_directory_symlink(folder / "m", folder / "link");
  for (const char* name : {"notes", "published/", "file.gguf", "with_more", "link", "notes/.", "notes/.."}) {
    const auto writer = FolderWriter::begin(folder / name, small_units(), "test", /*replace=*/true);
    ASSERT_FALSE(writer) << name;
    EXPECT_EQ(writer.error().code, Code::usage) << name;
    EXPECT_THAT(writer.error().message, HasSubstr("would be lost")) << name;
  }
  for (const char* there : {"notes/precious.txt", "published/config.json", "file.gguf", "with_more/source/config.json",
                            "m/engine.json", "link/engine.json"})
    EXPECT_TRUE(fs::is_regular_file(folder / there)) << there;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
    EXPECT_FALSE(entry.path().string().ends_with(".partial") || entry.path().string().ends_with(".lock"))
        << entry.path();
}

TEST(FolderWriter, two_runs_cannot_make_one_folder) {
  TempFolder folder;
  auto first = FolderWriter::begin(folder / "m", small_units(), "test");
  ASSERT_TRUE(first);
  EXPECT_THAT(FolderWriter::begin(folder / "m", small_units(), "test").error().message, HasSubstr("another process"));
}

TEST(FolderWriter, an_interrupted_run_leaves_nothing_that_looks_finished) {
  TempFolder folder;
  {
    auto writer = FolderWriter::begin(folder / "m", small_units(), "test");
    ASSERT_TRUE(writer);
    ASSERT_TRUE(write_units(writer->weights(), small_units(), 3));
  }
  EXPECT_FALSE(fs::exists(folder / "m"));
  EXPECT_FALSE(is_model_folder(folder / "m.partial"));
  ASSERT_TRUE(make_folder(folder / "m", small_units()));
  EXPECT_TRUE(ModelFolder::open(folder / "m"));
}

TEST(FolderWriter, abandoned_leaves_finished_weights_for_a_later_run_and_nothing_else) {
  TempFolder folder;
  auto empty = FolderWriter::begin(folder / "m", small_units(), "test");
  ASSERT_TRUE(empty && empty->write("config.json", "{}"));
  empty->abandon();
  EXPECT_TRUE(fs::is_empty(folder.path()));
  auto begun = FolderWriter::begin(folder / "m", small_units(), "test");
  ASSERT_TRUE(begun && write_units(begun->weights(), small_units(), 1));
  begun->abandon();
  EXPECT_TRUE(fs::exists(folder / "m.partial"));
}

// A file that may not grow stands for a full disk.
TEST(FolderWriter, a_full_disk_is_a_clear_error_and_the_run_can_be_repeated) {
  TempFolder folder;
  const std::vector<WeightUnit> units = {{{{"w", WeightFormat::q8c, Layout::rows, {4096, 4096}}}}};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {5 << 20, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const auto failed = make_folder(folder / "m", units);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::no_space);
  EXPECT_FALSE(fs::exists(folder / "m"));
  EXPECT_TRUE(make_folder(folder / "m", units));
}

TEST(FolderWriter, asks_for_the_space_before_it_writes) {
  TempFolder folder;
  const std::vector<WeightUnit> units = {{{{"w", WeightFormat::q8c, Layout::rows, {1LL << 30, 4096}}}}};
  const auto begun = FolderWriter::begin(folder / "m", units, "test");
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code, Code::no_space);
  EXPECT_THAT(begun.error().message, HasSubstr("MB free"));
}

}  // namespace
}  // namespace onw
