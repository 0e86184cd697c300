#include <sys/ioctl.h>
#include <unistd.h>

#include "base/terminal.h"

namespace onw {

bool is_terminal(Stream stream) { return ::isatty(static_cast<int>(stream)) == 1; }

int terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace onw
