#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/terminal.h"

namespace onw {

bool is_terminal(Stream stream) { return ::isatty(static_cast<int>(stream)) == 1; }

// A pipe is ready for writing where PIPE_BUF bytes, 4096, fit.
bool takes_a_line(Stream stream) {
  pollfd ready{static_cast<int>(stream), POLLOUT, 0};
  return ::poll(&ready, 1, 0) == 1;
}

// To a terminal in its usual mode the end is a line without characters.
bool end_waits(Stream stream) {
  const int fd = static_cast<int>(stream);
  pollfd ready{fd, POLLIN, 0};
  int characters = -1;
  return is_terminal(stream) && ::poll(&ready, 1, 0) == 1 && ::ioctl(fd, FIONREAD, &characters) == 0 && characters == 0;
}

bool comes_within(Stream stream, int milliseconds) {
  pollfd ready{static_cast<int>(stream), POLLIN, 0};
  return ::poll(&ready, 1, milliseconds) != 0;  // what fails is found out by whoever reads
}

int terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace onw
