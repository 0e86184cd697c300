// Time as chat templates print it.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>

namespace onw {

struct WallTime {
  std::tm fields{};
  int microseconds = 0;
};

// "2026-01-31", "2026-01-31T12:00", "2026-01-31 12:00:00.25"; a zone at the end is taken as read, not converted.
std::optional<WallTime> parse_iso8601(std::string_view text);
WallTime local_now();

// datetime.strftime of Python: C's directives, %f, and nothing for %z and %Z.
std::string format_time(const WallTime& time, std::string_view format);

}  // namespace onw
