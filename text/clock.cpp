#include "text/clock.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>

namespace onw {

std::optional<WallTime> parse_iso8601(std::string_view text) {
  const std::string copy(text);
  int year = 0, month = 0, day = 0, hour = 0, minute = 0;
  double second = 0;
  char between = 'T';
  const int read =
      std::sscanf(copy.c_str(), "%4d-%2d-%2d%c%2d:%2d:%lf", &year, &month, &day, &between, &hour, &minute, &second);
  const bool whole = read == 3 || read == 6 || read == 7;
  const auto date = std::chrono::year(year) / month / day;
  if (!whole || !date.ok() || (between != 'T' && between != ' ') || hour < 0 || hour > 23 || minute < 0 ||
      minute > 59 || !(second >= 0 && second < 61))
    return std::nullopt;
  WallTime time;
  const auto days = std::chrono::sys_days(date);
  time.fields.tm_year = year - 1900;
  time.fields.tm_mon = month - 1;
  time.fields.tm_mday = day;
  time.fields.tm_hour = hour;
  time.fields.tm_min = minute;
  time.fields.tm_sec = static_cast<int>(second);
  time.fields.tm_wday = static_cast<int>(std::chrono::weekday(days).c_encoding());
  time.fields.tm_yday = static_cast<int>((days - std::chrono::sys_days(std::chrono::year(year) / 1 / 1)).count());
  time.fields.tm_isdst = -1;
  time.microseconds = static_cast<int>(std::lround((second - time.fields.tm_sec) * 1e6)) % 1'000'000;
  return time;
}

WallTime local_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  WallTime time;
  ::localtime_r(&seconds, &time.fields);
  const auto since_epoch = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  time.microseconds = static_cast<int>(since_epoch % 1'000'000);
  return time;
}

std::string format_time(const WallTime& time, std::string_view format) {
  std::string directives;
  for (size_t i = 0; i < format.size(); ++i) {
    const char next = i + 1 < format.size() ? format[i + 1] : '\0';
    if (format[i] != '%' || next == '\0') {
      directives += format[i];
      continue;
    }
    ++i;
    if (next == 'f') directives += fmt::format("{:06}", time.microseconds);
    if (next != 'f' && next != 'z' && next != 'Z') (directives += '%') += next;
  }
  directives += '.';  // so that an empty result is not a failure
  std::string text(directives.size() * 8 + 256, '\0');
  text.resize(std::strftime(text.data(), text.size(), directives.c_str(), &time.fields));
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace onw
