// Progress of long work on stderr: a bar that redraws itself on a terminal, a plain line now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace onw::cli {

class Progress {
 public:
  enum class Unit : uint8_t { bytes, items };

  // `total` 0: not known.
  Progress(std::string label, int64_t total, Unit unit);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done);
  void update(int64_t done, int64_t total);

  void say(std::string_view text);  // a line of its own, above the bar

  // The text of one state, without the terminal's control characters; `columns` bounds it.
  std::string text(int64_t done, int columns) const;

 private:
  void show();

  std::string label_;
  int64_t total_;
  Unit unit_;
  bool terminal_;
  int64_t done_ = 0, shown_ = 0;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_shown_;
};

}  // namespace onw::cli
