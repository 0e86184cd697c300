#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/terminal.h"
#include "cli/output.h"

namespace onw::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kPlainLine = std::chrono::seconds(5);

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  return s >= 3600 ? fmt::format("{}h{:02}m", s / 3600, s / 60 % 60) : fmt::format("{}m{:02}s", s / 60, s % 60);
}

}  // namespace

Progress::Progress(std::string label, int64_t total, Unit unit)
    : label_(std::move(label)),
      total_(total),
      unit_(unit),
      terminal_(is_terminal(Stream::err)),
      start_(Clock::now()),
      last_shown_(start_) {}

Progress::~Progress() {
  if (!drawn_) return;
  if (terminal_ || done_ != shown_) show();
  if (terminal_) tell("\n");
}

void Progress::update(int64_t done, int64_t total) {
  total_ = total;
  update(done);
}

void Progress::update(int64_t done) {
  done_ = done;
  if (done_ == 0 && total_ == 0) return;  // nothing is known yet
  const auto now = Clock::now();
  if (now - last_shown_ < (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kPlainLine))) return;
  last_shown_ = now;
  show();
}

void Progress::say(std::string_view text) { tell("{}{}{}\n", terminal_ ? "\r" : "", text, terminal_ ? "\x1b[K" : ""); }

void Progress::show() {
  drawn_ = true;
  shown_ = done_;
  if (terminal_)
    tell("\r{}\x1b[K", text(done_, terminal_columns()));
  else
    tell("{}\n", text(done_, 200));
  std::fflush(stderr);
}

std::string Progress::text(int64_t done, int columns) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const auto amount = [this](int64_t n) { return unit_ == Unit::bytes ? bytes_text(n) : fmt::format("{}", n); };
  std::string line = label_;
  if (total_ > 0) {
    const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
    line += fmt::format("  {:3.0f} %  {} of {}", share * 100, amount(done), amount(total_));
  } else {
    line += fmt::format("  {}", amount(done));
  }
  if (unit_ == Unit::bytes && rate > 0) line += fmt::format("  {}/s", bytes_text(static_cast<int64_t>(rate)));
  if (total_ > done && rate > 0 && seconds > 2)
    line += fmt::format("  {} left", duration_text(static_cast<double>(total_ - done) / rate));
  if (columns > 1 && line.size() >= static_cast<size_t>(columns)) line.resize(static_cast<size_t>(columns) - 1);
  return line;
}

}  // namespace onw::cli
