#include "hub/route.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace onw {
namespace {

TEST(Route, is_what_libcurl_says_and_shows_no_password) {
  ::unsetenv("NO_PROXY");
  Route route;
  EXPECT_FALSE(route.through_proxy());
  route.hear("Uses proxy env variable no_proxy == 'localhost'");
  EXPECT_FALSE(route.through_proxy());
  route.hear("Uses proxy env variable HTTPS_PROXY == 'http://me:p@ss/w:rd@proxy.example:3128'");
  EXPECT_TRUE(route.through_proxy());
  EXPECT_EQ(route.text(), "through the proxy http://proxy.example:3128 (HTTPS_PROXY)");
  route.hear("Issue another request to this URL: 'https://elsewhere.example/'");
  EXPECT_FALSE(route.through_proxy());
}

TEST(Route, without_a_proxy_says_why) {
  for (const char* name :
       {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"})
    ::unsetenv(name);
  EXPECT_EQ(Route().text(), "directly (no proxy is set)");
  ::setenv("https_proxy", "http://proxy.example", 1);
  EXPECT_EQ(Route().text(), "directly (the proxy that is set is for other addresses)");
  ::setenv("NO_PROXY", "example", 1);
  EXPECT_EQ(Route().text(), "directly (as NO_PROXY says)");
  ::unsetenv("https_proxy");
  ::unsetenv("NO_PROXY");
}

TEST(Secrets, are_what_stands_before_an_at_sign) {
  EXPECT_EQ(without_secrets("Unsupported proxy syntax in 'http://a:b@c@host:1x': bad port"),
            "Unsupported proxy syntax in 'http://host:1x': bad port");
  EXPECT_EQ(without_secrets("a:b@host"), "host");
  EXPECT_EQ(without_secrets("https://host/path and 'more'"), "https://host/path and 'more'");
  EXPECT_EQ(without_secrets(""), "");
}

}  // namespace
}  // namespace onw
