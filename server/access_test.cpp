#include "server/access.h"

#include <gmock/gmock.h>

namespace onw::server {
namespace {

HttpRequest request(const std::string& host, const std::string& origin = {}, const std::string& method = "POST") {
  HttpRequest r;
  r.method = method;
  r.headers = {{"host", host}};
  if (!origin.empty()) r.headers.emplace_back("origin", origin);
  return r;
}

int status(const Access& access, const HttpRequest& r) {
  const auto refused = access.refuse(r);
  return refused ? refused->status : 200;
}

std::string header(const Headers& headers, const std::string& name) {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return "";
}

// server-115
TEST(Access, answers_only_under_the_names_of_this_machine) {
  const Access access({});
  for (const char* host : {"localhost", "localhost:8000", "LOCALHOST:1", "localhost.", "127.0.0.1", "127.0.0.1:8000",
                           "127.1.2.3", "[::1]", "[::1]:8000"})
    EXPECT_EQ(status(access, request(host)), 200) << host;
  for (const char* host :
       {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "1.2.3.4", "[::2]", "",
        "[::1", "localhost:80x", "user@localhost", "127.0.0.1:", "2130706433", "0x7f.1", "127.0.0.256", "[::1]evil"})
    EXPECT_EQ(status(access, request(host)), std::string_view(host) == "127.0.0.1:" ? 200 : 403) << host;
}

TEST(Access, needs_exactly_one_host) {
  const Access access({});
  EXPECT_EQ(status(access, HttpRequest{}), 400);
  auto two = request("localhost");
  two.headers.emplace_back("host", "evil.example");
  EXPECT_EQ(status(access, two), 400);
}

// server-115
TEST(Access, takes_further_names_that_were_allowed) {
  const Access access({.allowed_hosts = {"pc.lan", "Other.Example:80"}});
  EXPECT_EQ(status(access, request("pc.lan:8000")), 200);
  EXPECT_EQ(status(access, request("other.example")), 200);
  EXPECT_EQ(status(access, request("third.example")), 403);
  EXPECT_THAT(access.refuse(request("third.example:8"))->message, testing::HasSubstr("--allow-host third.example"));
}

TEST(Access, on_the_network_takes_addresses_but_still_no_unknown_names) {
  const Access access({.loopback = false});
  EXPECT_EQ(status(access, request("192.168.1.5:8000")), 200);
  EXPECT_EQ(status(access, request("[fe80::1]:8000")), 200);
  EXPECT_EQ(status(access, request("evil.example:8000")), 403);
}

// server-113
TEST(Access, lets_pages_read_answers_by_origin) {
  const Access access({.allowed_hosts = {"pc.lan"}, .allowed_origins = {"https://app.example"}});
  struct Row {
    const char* origin;
    bool allowed;
  };
  for (const auto& [origin, allowed] :
       {Row{"http://localhost:3000", true}, Row{"https://localhost", true}, Row{"http://127.0.0.1:5173", true},
        Row{"http://[::1]:1", true}, Row{"http://pc.lan:8000", true}, Row{"https://app.example", true},
        Row{"http://app.example", false}, Row{"https://app.example:444", false}, Row{"https://evil.example", false},
        Row{"http://localhost.evil.example", false}, Row{"null", false}, Row{"file://", false},
        Row{"chrome-extension://abc", false}}) {
    const auto r = request("localhost", origin);
    EXPECT_EQ(header(access.cors(r), "Access-Control-Allow-Origin"), allowed ? origin : "") << origin;
    EXPECT_EQ(header(access.cors(r), "Vary"), "Origin");
    EXPECT_EQ(header(access.cors(r), "Access-Control-Allow-Credentials"), "");
    EXPECT_EQ(status(access, r), allowed ? 200 : 403) << origin;
    EXPECT_EQ(status(access, request("localhost", origin, "GET")), 200) << "reading is the browser's to prevent";
  }
  EXPECT_TRUE(access.cors(request("localhost")).empty());
}

TEST(Access, for_all_pages_echoes_the_origin_and_never_a_star) {
  const Access access({.allowed_origins = {"*"}});
  const auto r = request("localhost", "https://any.example");
  EXPECT_EQ(header(access.cors(r), "Access-Control-Allow-Origin"), "https://any.example");
  EXPECT_EQ(status(access, r), 200);
}

// server-111
TEST(Access, preflight_needs_no_key) {
  const Access access({.api_key = "secret"});
  auto r = request("localhost", "http://localhost:3000", "OPTIONS");
  r.headers.emplace_back("access-control-request-headers", "authorization,x-stainless-os");
  r.headers.emplace_back("access-control-request-private-network", "true");
  const auto response = access.preflight(r);
  EXPECT_EQ(response.status, 204);
  EXPECT_EQ(header(response.headers, "Access-Control-Allow-Origin"), "http://localhost:3000");
  EXPECT_EQ(header(response.headers, "Access-Control-Allow-Headers"), "authorization,x-stainless-os");
  EXPECT_EQ(header(response.headers, "Access-Control-Allow-Private-Network"), "true");
  EXPECT_THAT(header(response.headers, "Access-Control-Allow-Methods"), testing::HasSubstr("POST"));
  const auto stranger = access.preflight(request("localhost", "https://evil.example", "OPTIONS"));
  EXPECT_EQ(header(stranger.headers, "Access-Control-Allow-Methods"), "");
}

TEST(Access, asks_for_the_key) {
  const Access access({.api_key = "secret"});
  auto r = request("localhost");
  EXPECT_EQ(access.refuse_without_key(r)->status, 401);
  for (const char* wrong :
       {"Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Bearer Secret", "secret", "Basic secret"}) {
    r = request("localhost");
    r.headers.emplace_back("authorization", wrong);
    EXPECT_TRUE(access.refuse_without_key(r).has_value()) << wrong;
  }
  r = request("localhost");
  r.headers.emplace_back("authorization", "Bearer secret");
  EXPECT_FALSE(access.refuse_without_key(r).has_value());
  EXPECT_FALSE(Access({}).refuse_without_key(request("localhost")).has_value());
}

}  // namespace
}  // namespace onw::server
