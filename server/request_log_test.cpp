#include "server/request_log.h"

#include <gtest/gtest.h>

namespace onw::server {
namespace {

TEST(RequestLog, is_one_line_of_time_request_status_and_how_it_ended) {
  const HttpRecord whole{"POST", "/v1/chat/completions", 200, true, 0.7421, note_text({52, 48, 31, 42.06, "stop", ""})};
  EXPECT_EQ(log_line(whole, 1796022007),
            "2026-11-30T07:00:07Z POST /v1/chat/completions 200 742ms prompt=52 reused=48 tokens=31 tokens/s=42.1 "
            "end=stop\n");
  EXPECT_EQ(
      note_text({.prompt_tokens = 5, .completion_tokens = 9, .end = "stop", .drafted_tokens = 6, .accepted_tokens = 4}),
      "prompt=5 reused=0 tokens=9 drafted=6 accepted=4 end=stop");
  EXPECT_EQ(log_line({"GET", "/health", 200, true, 0, ""}, 0), "1970-01-01T00:00:00Z GET /health 200 0ms\n");
  EXPECT_EQ(log_line({"POST", "/x", 0, false, 0, ""}, 0), "1970-01-01T00:00:00Z POST /x - 0ms end=cancelled\n");
}

TEST(RequestLog, shows_nothing_that_could_break_the_line_or_speak_to_a_terminal) {
  const HttpRecord hostile{"GET\n", "/\x1b[2J\xff \"" + std::string(5000, 'a'),
                           404,     true,
                           0,       note_text({1, 0, 0, 0, "error", "a\nb\x1b" + std::string(5000, 'c')})};
  const std::string line = log_line(hostile, 0);
  EXPECT_LT(line.size(), 2000U);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  for (const char c : line.substr(0, line.size() - 1)) EXPECT_TRUE(c >= ' ' && c < 0x7f);
  EXPECT_NE(line.find("GET%0A /%1B[2J%FF%20%22aaa"), std::string::npos) << line;
}

}  // namespace
}  // namespace onw::server
