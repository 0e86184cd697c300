#include "hub/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "base/temp_folder.h"
#include "tests/http_server.h"

namespace onw {
namespace {

using ::testing::HasSubstr;
using testing::HttpServer;
using testing::HttpServerReply;
using testing::HttpServerRequest;

HttpServerReply hello(const HttpServerRequest&) { return {200, "hello", {}, -1}; }

tl::expected<HttpResponse, HttpFailure> get(const std::string& url, std::string& body) {
  return http_get({url, "", 0, 5, 5}, [&](const HttpResponse&, std::string_view piece) {
    body += piece;
    return true;
  });
}

// hub-145
TEST(Http, names_the_issuer_of_a_certificate_that_is_not_trusted_and_the_remedy) {
  std::signal(SIGPIPE, SIG_IGN);
  const HttpServer server(hello, "Inspection CA of Example");
  std::string body;
  const auto response = get(server.address(), body);
  ASSERT_FALSE(response);
  EXPECT_FALSE(response.error().may_pass);
  EXPECT_THAT(response.error().error.message, HasSubstr("Inspection CA of Example"));
  EXPECT_THAT(response.error().error.message, HasSubstr("SSL_CERT_FILE"));
  EXPECT_EQ(body, "");
}

// hub-145
TEST(Http, trusts_the_certificates_that_the_environment_names) {
  std::signal(SIGPIPE, SIG_IGN);
  const HttpServer server(hello, "Inspection CA of Example");
  const TempFolder folder;
  const auto file = folder.write("ca.pem", server.certificate());
  const char* old = std::getenv("SSL_CERT_FILE");
  const std::string kept = old == nullptr ? "" : old;
  ::setenv("SSL_CERT_FILE", file.c_str(), 1);
  std::string body;
  const auto response = get(server.address(), body);
  old == nullptr ? ::unsetenv("SSL_CERT_FILE") : ::setenv("SSL_CERT_FILE", kept.c_str(), 1);
  ASSERT_TRUE(response) << response.error().error.message;
  EXPECT_EQ(body, "hello");
}

TEST(Http, follows_redirects_to_http_only_and_not_for_ever) {
  const HttpServer file(
      [](const HttpServerRequest&) { return HttpServerReply{302, "", {{"Location", "file:///etc/passwd"}}, -1}; });
  std::string body;
  EXPECT_FALSE(get(file.address(), body));
  const HttpServer circle([](const HttpServerRequest&) { return HttpServerReply{302, "", {{"Location", "/"}}, -1}; });
  const auto response = get(circle.address(), body);
  ASSERT_FALSE(response);
  EXPECT_FALSE(response.error().may_pass);
  EXPECT_EQ(body, "");
}

TEST(Http, gives_the_headers_of_the_first_and_the_last_response) {
  const HttpServer server([](const HttpServerRequest& r) -> HttpServerReply {
    if (r.target == "/") return {302, "away", {{"Location", "/b"}, {"X-First", "1"}}, -1};
    return {200, "here", {{"X-Last", "2"}}, -1};
  });
  std::string body;
  const auto response = get(server.address() + "/", body);
  ASSERT_TRUE(response);
  EXPECT_EQ(body, "here");
  EXPECT_EQ(response->first_headers.at("x-first"), "1");
  EXPECT_EQ(response->first_headers.count("x-last"), 0u);
  EXPECT_EQ(response->headers.at("x-last"), "2");
  EXPECT_EQ(response->url, server.address() + "/b");
}

TEST(Http, refuses_other_protocols) {
  std::string body;
  for (const auto* url : {"file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/x"})
    EXPECT_FALSE(get(url, body)) << url;
  EXPECT_EQ(body, "");
}

}  // namespace
}  // namespace onw
