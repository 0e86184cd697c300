// What an engine tells people while it runs, kept until a line on the terminal is free for it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/device_status.h"

namespace onw::cli {

class NoticeBoard {
 public:
  // For EngineOptions::notice: from any thread, at any time.
  static Notice collector(const std::shared_ptr<NoticeBoard>& board);

  // On stderr, each a line; once.
  void show();

 private:
  std::mutex mutex_;
  std::vector<std::string> waiting_;
};

}  // namespace onw::cli
