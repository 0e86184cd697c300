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
  bool any();  // that were not shown yet

  // As long as it lives, no answer is under way and nobody edits a line: notices are shown as they come.
  class Free {
   public:
    explicit Free(NoticeBoard& board) : board_(board) { board_.set_free(true); }
    ~Free() { board_.set_free(false); }
    Free(const Free&) = delete;
    Free& operator=(const Free&) = delete;

   private:
    NoticeBoard& board_;
  };

 private:
  void set_free(bool is_free);
  void show_all();  // under the lock

  std::mutex mutex_;
  std::vector<std::string> waiting_;
  bool free_ = false;
};

}  // namespace onw::cli
