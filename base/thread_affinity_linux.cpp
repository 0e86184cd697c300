#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include "base/thread_affinity.h"

namespace onw {

void keep_thread_on(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

void yield_to_others() { ::setpriority(PRIO_PROCESS, 0, 10); }  // of the thread, on Linux

}  // namespace onw
