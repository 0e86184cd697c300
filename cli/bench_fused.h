// Graphs with attention inside are made beside the answers: a measurement waits until they are there.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "targets/openvino/fused_news.h"

namespace onw::cli {

class FusedWatch {
 public:
  // For LoadOptions::on_fused; any thread may call it, for as long as it likes.
  std::function<void(const FusedNews&)> ear() const;
  // Until nothing is left to make, with progress on stderr; then what there is: "attention inside the graphs up to 4096
  // tokens", or why not. Empty: no such graphs are made.
  std::string wait() const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int made = 0;
    int64_t tokens = 0;
    std::string why;
    bool done = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace onw::cli
