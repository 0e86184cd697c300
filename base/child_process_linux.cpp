#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>

#include "base/child_process.h"

extern char** environ;

namespace onw {
namespace {

constexpr size_t kMostBytes = 1 << 20;

using Clock = std::chrono::steady_clock;

// A pipe's two ends, closed when it goes.
class Pipe {
 public:
  Pipe() { open_ = ::pipe2(ends_.data(), O_CLOEXEC) == 0; }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  bool is_open() const { return open_; }
  int end(int i) const { return ends_[static_cast<size_t>(i)]; }
  void close_end(int i) {
    int& fd = ends_[static_cast<size_t>(i)];
    if (open_ && fd >= 0) ::close(fd);
    fd = -1;
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
  bool open_ = false;
};

Result<pid_t> start(const std::vector<std::string>& words, const Pipe& out, const Pipe& err) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.end(1), 1);
  ::posix_spawn_file_actions_adddup2(&actions, err.end(1), 2);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);  // a server's port would stay taken after its end
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // a group of its own, to be ended as one
  pid_t child = 0;
  const int failure = ::posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return error(Code::io, "{}: cannot be started: {}", words[0], ::strerror(failure));
  return child;
}

// What the pipe holds; false at its end.
bool read_some(int fd, std::string& into) {
  std::array<char, 65536> piece;
  const ssize_t n = ::read(fd, piece.data(), piece.size());
  if (n < 0) return errno == EINTR;
  if (n > 0 && into.size() < kMostBytes) into.append(piece.data(), static_cast<size_t>(n));
  return n > 0;
}

// Reads both until both end; false at the deadline, or when the caller has had enough.
bool read_until(Clock::time_point deadline, const std::function<bool()>& stop, const Pipe& out, const Pipe& err,
                ChildOutcome& outcome) {
  constexpr int64_t kAskEveryMs = 50;
  std::array<pollfd, 2> open = {pollfd{out.end(0), POLLIN, 0}, pollfd{err.end(0), POLLIN, 0}};
  while (open[0].fd >= 0 || open[1].fd >= 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || (stop && stop())) return false;
    const int64_t wait = std::min<int64_t>(left, stop ? kAskEveryMs : 1 << 30);
    if (::poll(open.data(), open.size(), static_cast<int>(wait)) < 0 && errno != EINTR) return false;
    for (size_t i = 0; i < open.size(); ++i)
      if (open[i].fd >= 0 && open[i].revents != 0 && !read_some(open[i].fd, i == 0 ? outcome.output : outcome.errors))
        open[i].fd = -1;
  }
  return true;
}

// Whether it has ended by the deadline.
bool wait_until(pid_t child, Clock::time_point deadline, int& status, rusage& use) {
  for (;;) {
    const pid_t ended = ::wait4(child, &status, WNOHANG, &use);
    if (ended == child) return true;
    if (Clock::now() >= deadline) return false;
    ::usleep(2000);
  }
}

}  // namespace

Result<ChildOutcome> run_child(const std::vector<std::string>& words, double seconds) {
  return run_child(words, seconds, nullptr);
}

Result<ChildOutcome> run_child(const std::vector<std::string>& words, double seconds,
                               const std::function<bool()>& stop) {
  CHECK(!words.empty());
  Pipe out, err;
  if (!out.is_open() || !err.is_open()) return error(Code::io, "no pipe to a child process: {}", ::strerror(errno));
  const auto child = start(words, out, err);
  RETURN_IF_ERROR(child);
  out.close_end(1);
  err.close_end(1);
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  ChildOutcome outcome;
  int status = 0;
  rusage use = {};
  if (!read_until(deadline, stop, out, err, outcome) || !wait_until(*child, deadline, status, use)) {
    outcome.timed_out = Clock::now() >= deadline;
    outcome.stopped = !outcome.timed_out;
    ::kill(-*child, SIGKILL);
    while (::wait4(*child, &status, 0, &use) < 0 && errno == EINTR) {
    }
  }
  outcome.peak_bytes = int64_t{1024} * use.ru_maxrss;
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  return outcome;
}

void be_a_child() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::ofstream("/proc/self/oom_score_adj") << "1000";
}

std::string describe(const ChildOutcome& outcome, double seconds) {
  if (outcome.timed_out) return fmt::format("did not end within {:.0f} s", seconds);
  if (outcome.stopped) return "was stopped";
  if (outcome.signal == SIGKILL) return "was killed: the system had no memory left, or somebody ended it";
  if (outcome.signal != 0) return fmt::format("crashed ({})", ::strsignal(outcome.signal));
  return fmt::format("ended with exit code {}", outcome.exit_code);
}

std::filesystem::path this_program() {
  std::error_code failure;
  return std::filesystem::read_symlink("/proc/self/exe", failure);
}

}  // namespace onw
