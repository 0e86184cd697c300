#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include "base/interrupt.h"
#include "base/result.h"

namespace onw {
namespace {

std::atomic<int> g_wake_fd = -1;

// Only async-signal-safe calls here: the number of the signal goes through a pipe to the watching thread.
void on_signal(int number) {
  const int saved = errno;
  const char byte = static_cast<char>(number);
  const int fd = g_wake_fd.load();
  if (fd >= 0 && ::write(fd, &byte, 1) < 0) errno = saved;
  errno = saved;
}

}  // namespace

struct InterruptWatch::State {
  std::function<void(Interrupt)> callback;
  std::array<int, 2> pipe = {-1, -1};
  struct sigaction old_int = {};
  struct sigaction old_term = {};
  std::thread thread;

  void watch() const {
    char byte = 0;
    while (true) {
      const ssize_t n = ::read(pipe[0], &byte, 1);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0 || byte == 0) return;
      callback(byte == SIGINT ? Interrupt::ctrl_c : Interrupt::terminate);
    }
  }
};

InterruptWatch::InterruptWatch(std::function<void(Interrupt)> callback) : state_(std::make_unique<State>()) {
  state_->callback = std::move(callback);
  CHECK(::pipe2(state_->pipe.data(), O_CLOEXEC) == 0);
  CHECK(g_wake_fd.exchange(state_->pipe[1]) == -1);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);  // the watching thread takes no signal itself
  pthread_sigmask(SIG_SETMASK, &all, &before);
  state_->thread = std::thread([state = state_.get()] { state->watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // an answer that is being written is not torn: stdio drops what EINTR leaves over
  ::sigaction(SIGINT, &action, &state_->old_int);
  ::sigaction(SIGTERM, &action, &state_->old_term);
}

InterruptWatch::~InterruptWatch() {
  ::sigaction(SIGINT, &state_->old_int, nullptr);
  ::sigaction(SIGTERM, &state_->old_term, nullptr);
  g_wake_fd.store(-1);
  const char end = 0;
  if (::write(state_->pipe[1], &end, 1) != 1) exit_now(1);  // the thread could never be joined
  state_->thread.join();
  ::close(state_->pipe[0]);
  ::close(state_->pipe[1]);
}

void ignore_broken_pipes() { ::signal(SIGPIPE, SIG_IGN); }

void exit_now(int code) { ::_exit(code); }

}  // namespace onw
