#include "hub/download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>

#include "base/digest.h"
#include "base/temp_folder.h"
#include "tests/http_server.h"

namespace onw {
namespace {

using ::testing::HasSubstr;
using testing::HttpServer;
using testing::HttpServerReply;
using testing::HttpServerRequest;

const Patience kShort{.tries = 3, .first_wait_seconds = .001, .stall_seconds = 2};

std::string content() {
  std::string bytes;
  for (int64_t i = 0; i < 300'000; ++i) bytes += static_cast<char>(i * i % 251);
  return bytes;
}

std::string sha256(std::string_view text) {
  Digest digest;
  digest.add(text);
  return digest.hex();
}

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// One file on a server, and the folder it goes to.
struct Scene {
  explicit Scene(HttpServer::Handler handler) : server(std::move(handler)) {}

  Download what() const {
    return {"m.bin", server.address() + "/m.bin", "", target(), static_cast<int64_t>(bytes.size()), sha256(bytes), ""};
  }
  std::filesystem::path target() const { return folder / "m.bin"; }
  std::filesystem::path part() const { return folder / "m.bin.part"; }

  std::string bytes = content();
  TempFolder folder;
  HttpServer server;
};

TEST(Download, brings_the_file_and_leaves_no_part) {
  Scene scene([](const HttpServerRequest& r) { return testing::serve_range(r, content()); });
  const auto done = download(scene.what(), kShort, {});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(read(scene.target()), scene.bytes);
  EXPECT_EQ(done->sha256, sha256(scene.bytes));
  EXPECT_FALSE(std::filesystem::exists(scene.part()));
  EXPECT_TRUE(is_complete(scene.what(), scene.target()));
}

TEST(Download, goes_on_after_a_cut_transfer) {
  std::atomic<int> answers = 0;
  Scene scene([&](const HttpServerRequest& r) {
    auto reply = testing::serve_range(r, content());
    if (answers++ < 2) reply.sent_bytes = 100'000;
    return reply;
  });
  ASSERT_TRUE(download(scene.what(), kShort, {}));
  EXPECT_EQ(read(scene.target()), scene.bytes);
  const auto requests = scene.server.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].header("range"), "");
  EXPECT_EQ(requests[1].header("range"), "bytes=100000-");
  EXPECT_EQ(requests[2].header("range"), "bytes=200000-");
}

TEST(Download, goes_on_from_the_part_of_an_earlier_run) {
  Scene scene([](const HttpServerRequest& r) { return testing::serve_range(r, content()); });
  scene.folder.write("m.bin.part", scene.bytes.substr(0, 12345));
  ASSERT_TRUE(download(scene.what(), kShort, {}));
  EXPECT_EQ(read(scene.target()), scene.bytes);
  EXPECT_EQ(scene.server.requests().front().header("range"), "bytes=12345-");
}

TEST(Download, starts_over_where_the_server_knows_no_ranges) {
  Scene scene([](const HttpServerRequest&) { return HttpServerReply{200, content(), {}, -1}; });
  scene.folder.write("m.bin.part", scene.bytes.substr(0, 12345));
  ASSERT_TRUE(download(scene.what(), kShort, {}));
  EXPECT_EQ(read(scene.target()), scene.bytes);
}

TEST(Download, starts_over_where_the_server_sends_another_range) {
  std::atomic<int> answers = 0;
  Scene scene([&](const HttpServerRequest& r) {
    auto reply = testing::serve_range(r, content());
    if (answers++ == 0) reply.headers["Content-Range"] = "bytes 5-299999/300000";
    return reply;
  });
  scene.folder.write("m.bin.part", scene.bytes.substr(0, 12345));
  ASSERT_TRUE(download(scene.what(), kShort, {}));
  EXPECT_EQ(read(scene.target()), scene.bytes);
}

// hub-138
TEST(Download, with_a_flipped_byte_is_tried_again_and_mended) {
  std::atomic<int> answers = 0;
  Scene scene([&](const HttpServerRequest& r) {
    auto body = content();
    if (answers++ == 0) body[777] ^= 1;
    return testing::serve_range(r, body);
  });
  ASSERT_TRUE(download(scene.what(), kShort, {}));
  EXPECT_EQ(read(scene.target()), scene.bytes);
  EXPECT_EQ(scene.server.requests().size(), 2u);
}

// hub-138
TEST(Download, that_stays_wrong_shows_both_digests_and_leaves_nothing) {
  auto wrong = content();
  wrong[777] ^= 1;
  Scene scene([&](const HttpServerRequest& r) { return testing::serve_range(r, wrong); });
  const auto done = download(scene.what(), kShort, {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::digest_mismatch);
  EXPECT_THAT(done.error().message, HasSubstr(sha256(wrong)));
  EXPECT_THAT(done.error().message, HasSubstr(sha256(scene.bytes)));
  EXPECT_FALSE(std::filesystem::exists(scene.target()));
  EXPECT_FALSE(std::filesystem::exists(scene.part()));
}

TEST(Download, checks_the_digest_that_only_the_answer_names) {
  Scene scene([](const HttpServerRequest& r) {
    auto reply = testing::serve_range(r, content());
    reply.headers["X-Linked-Etag"] = '"' + std::string(64, 'a') + '"';
    return reply;
  });
  auto what = scene.what();
  what.sha256.clear();
  const auto done = download(what, kShort, {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::digest_mismatch);
}

TEST(Download, checks_small_files_by_git_s_digest) {
  Scene scene([](const HttpServerRequest&) { return HttpServerReply{200, "hello\n", {}, -1}; });
  Download what{"m.bin", scene.server.address(), "", scene.target(), 6, "", "ce013625030ba8dba906f756967f9e9ca394464a"};
  ASSERT_TRUE(download(what, kShort, {}));
  EXPECT_TRUE(is_complete(what, scene.target()));
  what.git_sha1.back() = 'b';
  EXPECT_FALSE(is_complete(what, scene.target()));
  EXPECT_FALSE(download(what, kShort, {}));
}

TEST(Download, follows_a_redirect_without_giving_the_token_away) {
  HttpServer elsewhere([](const HttpServerRequest& r) { return testing::serve_range(r, content()); });
  Scene scene([&](const HttpServerRequest&) {
    return HttpServerReply{
        302, "moved", {{"Location", "http://localhost:" + std::to_string(elsewhere.port()) + "/x"}}, -1};
  });
  auto what = scene.what();
  what.token = "secret";
  ASSERT_TRUE(download(what, kShort, {}));
  EXPECT_EQ(read(scene.target()), scene.bytes);
  EXPECT_EQ(scene.server.requests().at(0).header("authorization"), "Bearer secret");
  EXPECT_EQ(elsewhere.requests().at(0).header("authorization"), "");
}

TEST(Download, tries_again_what_may_pass_and_only_that) {
  std::atomic<int> status = 503;
  Scene scene([&](const HttpServerRequest&) { return HttpServerReply{status, "", {}, -1}; });
  EXPECT_FALSE(download(scene.what(), kShort, {}));
  EXPECT_EQ(scene.server.requests().size(), 3u);
  status = 404;
  const auto missing = download(scene.what(), kShort, {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::not_found);
  EXPECT_EQ(scene.server.requests().size(), 4u);
  status = 401;
  const auto refused = download(scene.what(), kShort, {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("HF_TOKEN"));
}

TEST(Download, says_what_to_do_when_nobody_answers) {
  Scene scene([](const HttpServerRequest&) { return HttpServerReply{}; });
  auto what = scene.what();
  what.url = "http://127.0.0.1:1/m.bin";
  const auto done = download(what, kShort, {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::network);
  EXPECT_THAT(done.error().message, HasSubstr("http_proxy"));
}

TEST(Download, can_be_cancelled_and_goes_on_later) {
  Scene scene([](const HttpServerRequest& r) { return testing::serve_range(r, content()); });
  const auto cancelled = download(scene.what(), kShort, [](int64_t done) { return done < 100'000; });
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, Code::cancelled);
  const auto kept = std::filesystem::file_size(scene.part());
  EXPECT_GE(kept, 100'000u);
  ASSERT_TRUE(download(scene.what(), kShort, {}));
  EXPECT_EQ(scene.server.requests().back().header("range"), "bytes=" + std::to_string(kept) + "-");
}

TEST(Download, refuses_a_lfs_pointer) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
  Scene scene([&](const HttpServerRequest&) { return HttpServerReply{200, pointer, {}, -1}; });
  const auto done = download({"m.bin", scene.server.address(), "", scene.target(), -1, "", ""}, kShort, {});
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("LFS pointer"));
}

TEST(Download, never_writes_through_a_link) {
  Scene scene([](const HttpServerRequest& r) { return testing::serve_range(r, content()); });
  const auto victim = scene.folder.write("victim", "precious");
  std::filesystem::create_symlink(victim, scene.part());
  ASSERT_TRUE(download(scene.what(), kShort, {}));
  EXPECT_EQ(read(victim), "precious");
}

// hub-146
TEST(Download, goes_through_the_proxy_of_the_environment_for_every_host) {
  HttpServer proxy([](const HttpServerRequest& r) -> HttpServerReply {
    if (r.target.starts_with("http://hub.invalid/")) return {302, "", {{"Location", "http://cdn.invalid/m.bin"}}, -1};
    return testing::serve_range(r, content());
  });
  ::setenv("http_proxy", proxy.address().c_str(), 1);
  Scene scene([](const HttpServerRequest&) { return HttpServerReply{}; });
  auto what = scene.what();
  what.url = "http://hub.invalid/m.bin";  // a name that only the proxy could know
  const auto done = download(what, kShort, {});
  ::setenv("no_proxy", "127.0.0.1", 1);
  what.url = scene.server.address() + "/m.bin";
  const auto direct = download(what, kShort, {});
  ::unsetenv("http_proxy");
  ::unsetenv("no_proxy");
  ASSERT_TRUE(done) << done.error().message;
  const auto requests = proxy.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].target, "http://hub.invalid/m.bin");
  EXPECT_EQ(requests[1].target, "http://cdn.invalid/m.bin");
  EXPECT_FALSE(scene.server.requests().empty());  // NO_PROXY
}

}  // namespace
}  // namespace onw
