#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "base/process.h"

namespace onw {

void prepare_process() {
  for (int fd = 0; fd <= 2; ++fd)  // ascending, so that open() takes this very number
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
  ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace onw
