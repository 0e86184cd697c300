#include "hub/pull.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/digest.h"
#include "base/temp_folder.h"
#include "tests/http_server.h"

namespace onw {
namespace {

using ::testing::HasSubstr;
using testing::HttpServer;
using testing::HttpServerReply;
using testing::HttpServerRequest;

using Files = std::map<std::string, std::string>;

std::string hex(Digest::Kind kind, std::string_view text) {
  Digest digest(kind);
  digest.add(text);
  return digest.hex();
}

// A hub with one repository, org/name, at commit c0ffee. Weights lie outside git, as on the real one.
HttpServerReply hub_reply(const Files& files, const HttpServerRequest& request) {
  if (request.target.starts_with("/api/models/org/name/revision/")) {
    std::string siblings;
    for (const auto& [name, content] : files) {
      const bool lfs = name.ends_with(".safetensors") || name.ends_with(".gguf");
      siblings += fmt::format(
          R"({}{{"rfilename":"{}","size":{},"blobId":"{}"{}}})", siblings.empty() ? "" : ",", name, content.size(),
          hex(Digest::Kind::sha1, fmt::format("blob {}", content.size()) + std::string(1, '\0') + content),
          lfs ? fmt::format(R"(,"lfs":{{"sha256":"{}","size":{}}})", hex(Digest::Kind::sha256, content), content.size())
              : std::string());
    }
    return {
        200,
        fmt::format(R"({{"id":"org/name","sha":"c0ffee","cardData":{{"license":"mit"}},"siblings":[{}]}})", siblings),
        {},
        -1};
  }
  const std::string prefix = "/org/name/resolve/c0ffee/";
  if (!request.target.starts_with(prefix)) return {404, "", {}, -1};
  const auto found = files.find(request.target.substr(prefix.size()));
  if (found == files.end()) return {404, "", {}, -1};
  return testing::serve_range(request, found->second);
}

const Files kModel = {
    {"config.json", "{}\n"},
    {"tokenizer.json", "{\"model\":{}}\n"},
    {"model.safetensors.index.json", R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})"},
    {"model-1.safetensors", std::string(200'000, 'a')},
    {"model-2.safetensors", std::string(100'000, 'b')},
    {"consolidated.safetensors", "stray"},
    {"README.md", "text"}};

struct Scene {
  explicit Scene(Files model = kModel) : files(std::move(model)) {}

  Hub hub() const { return {server.address(), "", {.tries = 2, .first_wait_seconds = .001, .stall_seconds = 2}}; }
  Result<Pulled> pull(std::string file = "") const {
    return onw::pull({"org/name", "", std::move(file), folder.path() / "m"}, hub(), {});
  }

  Files files;
  TempFolder folder{"模型 é"};  // platform/ui-158
  HttpServer server{[this](const HttpServerRequest& r) { return hub_reply(files, r); }};
};

TEST(Pull, brings_what_a_model_needs_and_a_note_of_its_origin) {
  const Scene scene;
  const auto pulled = scene.pull();
  ASSERT_TRUE(pulled) << pulled.error().message;
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(pulled->folder)) {
    names.insert(entry.path().filename().string());
    EXPECT_FALSE(entry.is_symlink());  // hub-143
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("config.json", "tokenizer.json", "model.safetensors.index.json",
                                                     "model-1.safetensors", "model-2.safetensors", "pulled.json"));
  const auto note = read_pulled(pulled->folder);
  ASSERT_TRUE(note);
  EXPECT_EQ(note->source, "org/name");
  EXPECT_EQ(note->revision, "c0ffee");
  EXPECT_EQ(note->licence, "mit");
  EXPECT_EQ(note->files.size(), 5u);
}

TEST(Pull, again_downloads_only_what_is_missing_or_wrong) {
  const Scene scene;
  const auto first = scene.pull();
  ASSERT_TRUE(first);
  const auto before = scene.server.requests().size();
  const auto second = scene.pull();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->downloaded_bytes, 0);
  EXPECT_EQ(scene.server.requests().size(), before + 1);  // the list of files
  std::ofstream(first->folder / "model-2.safetensors", std::ios::binary) << std::string(100'000, 'c');
  const auto third = scene.pull();
  ASSERT_TRUE(third);
  EXPECT_EQ(third->downloaded_bytes, 100'000);
}

TEST(Pull, counts_up_to_the_total) {
  const Scene scene({{"m.gguf", std::string(300'000, 'x')}});
  int64_t last = -1, total = 0;
  const auto watch = [&](const PullProgress& p) {
    if (p.total > 0) EXPECT_GE(p.done, last);
    last = p.done;
    total = p.total;
    return true;
  };
  ASSERT_TRUE(pull({"org/name", "", "", scene.folder.path() / "m"}, scene.hub(), watch));
  EXPECT_EQ(last, 300'000);
  EXPECT_EQ(total, 300'000);
}

TEST(Pull, without_room_on_the_disk_downloads_nothing) {
  const Scene scene({{"m.gguf", "x"}});
  HttpServer boastful([](const HttpServerRequest&) {
    return HttpServerReply{
        200, R"({"sha":"c","siblings":[{"rfilename":"m.gguf","size":4000000000000000000}]})", {}, -1};
  });
  auto hub = scene.hub();
  hub.endpoint = boastful.address();
  const auto pulled = pull({"org/name", "", "", scene.folder.path() / "m"}, hub, {});
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().code, Code::no_space);
  EXPECT_EQ(boastful.requests().size(), 1u);
}

// hub-141
TEST(Pull, of_a_repository_with_a_hostile_name_writes_nothing) {
  const Scene scene;
  HttpServer hostile([](const HttpServerRequest&) {
    return HttpServerReply{
        200, R"({"sha":"c","siblings":[{"rfilename":"m.gguf","size":1},{"rfilename":"../../x","size":1}]})", {}, -1};
  });
  auto hub = scene.hub();
  hub.endpoint = hostile.address();
  const auto pulled = pull({"org/name", "", "", scene.folder.path() / "m"}, hub, {});
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().code, Code::bad_format);
  EXPECT_EQ(hostile.requests().size(), 1u);
  EXPECT_TRUE(std::filesystem::is_empty(scene.folder.path() / "m"));
}

// hub-141
TEST(Pull, does_not_follow_a_link_out_of_the_folder) {
  const Scene scene({{"m.gguf", "x"}, {"additional_chat_templates/tool.jinja", "y"}, {"model.safetensors", "z"}});
  const TempFolder outside;
  std::filesystem::create_directories(scene.folder.path() / "m");
  std::filesystem::create_directory_symlink(outside.path(), scene.folder.path() / "m" / "additional_chat_templates");
  EXPECT_FALSE(scene.pull());
  EXPECT_TRUE(std::filesystem::is_empty(outside.path()));
}

TEST(Pull, interrupted_leaves_nothing_that_looks_finished) {
  const Scene scene;
  const auto stop = [](const PullProgress& p) { return p.file != "model-1.safetensors"; };
  const auto pulled = pull({"org/name", "", "", scene.folder.path() / "m"}, scene.hub(), stop);
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().code, Code::cancelled);
  EXPECT_FALSE(read_pulled(scene.folder.path() / "m"));
  ASSERT_TRUE(scene.pull());
  EXPECT_TRUE(read_pulled(scene.folder.path() / "m"));
}

TEST(Pull, of_what_the_hub_does_not_have_says_so) {
  const Scene scene;
  const auto pulled = pull({"org/other", "", "", scene.folder.path() / "m"}, scene.hub(), {});
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().code, Code::not_found);
  EXPECT_THAT(pulled.error().message, HasSubstr("org/other"));
}

TEST(Pull, takes_one_file_from_any_address) {
  const Scene scene;
  HttpServer elsewhere([](const HttpServerRequest& r) { return testing::serve_range(r, "GGUF..."); });
  auto hub = scene.hub();
  hub.token = "secret";
  const auto pulled = pull({elsewhere.address() + "/dir/m.gguf?x=1", "", "", scene.folder.path() / "m"}, hub, {});
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->files.at(0).name, "m.gguf");
  EXPECT_EQ(pulled->files.at(0).bytes, 7);
  EXPECT_EQ(elsewhere.requests().at(0).header("authorization"), "");  // the token is the hub's
}

TEST(ReadPulled, of_a_damaged_note_is_an_error) {
  const TempFolder folder;
  for (const auto* text : {"", "[]", "{", "{\"files\":3}"}) {
    folder.write("pulled.json", text);
    EXPECT_FALSE(read_pulled(folder.path())) << text;
  }
  folder.write("pulled.json", R"({"files":[3,{"name":4,"bytes":"x"}]})");
  EXPECT_TRUE(read_pulled(folder.path()));
}

TEST(DownloadFolder, is_one_plain_name_for_each_source) {
  EXPECT_EQ(download_folder("/data", {"org/name", "", "", ""}), "/data/downloads/org--name");
  EXPECT_EQ(download_folder("/data", {"", "", "m.gguf", "https://example.org:8/a/m.gguf"}),
            "/data/downloads/example.org--m.gguf");
}

}  // namespace
}  // namespace onw
