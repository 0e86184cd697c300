#include "cli/notices.h"

#include "cli/output.h"

namespace onw::cli {

Notice NoticeBoard::collector(const std::shared_ptr<NoticeBoard>& board) {
  return [board](const std::string& text) {
    const std::lock_guard lock(board->mutex_);
    board->waiting_.push_back(text);
  };
}

void NoticeBoard::show() {
  std::vector<std::string> texts;
  {
    const std::lock_guard lock(mutex_);
    texts.swap(waiting_);
  }
  for (const std::string& text : texts) tell("{}\n", printable(text));
}

}  // namespace onw::cli
