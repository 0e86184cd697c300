#include "cli/notices.h"

#include "cli/output.h"

namespace onw::cli {

Notice NoticeBoard::collector(const std::shared_ptr<NoticeBoard>& board) {
  return [board](const std::string& text) {
    const std::lock_guard lock(board->mutex_);
    board->waiting_.push_back(text);
    if (board->free_) board->show_all();
  };
}

void NoticeBoard::show() {
  const std::lock_guard lock(mutex_);
  show_all();
}

bool NoticeBoard::any() {
  const std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

void NoticeBoard::set_free(bool is_free) {
  const std::lock_guard lock(mutex_);
  free_ = is_free;
  if (is_free) show_all();
}

void NoticeBoard::show_all() {
  for (const std::string& text : waiting_) tell("{}\n", printable(text));
  waiting_.clear();
}

}  // namespace onw::cli
