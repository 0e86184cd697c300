// Ctrl-C and SIGTERM as calls instead of a sudden end.
#pragma once

#include <functional>
#include <memory>

namespace onw {

enum class Interrupt { ctrl_c, terminate };

// As long as it lives, `callback` is called for each signal, on a thread of its own. One at a time per process.
class InterruptWatch {
 public:
  explicit InterruptWatch(std::function<void(Interrupt)> callback);
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Writing to a closed socket or pipe becomes an error instead of the end of the process.
void ignore_broken_pipes();

// Ends the process at once, without unwinding: for a second Ctrl-C.
[[noreturn]] void exit_now(int code);

}  // namespace onw
