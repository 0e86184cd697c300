#include <sys/resource.h>

#include "base/preemptions.h"

namespace onw {

int64_t preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

}  // namespace onw
