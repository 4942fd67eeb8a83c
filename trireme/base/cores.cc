#include <sched.h>
#include <trireme/base/cores.h>
#include <algorithm>

namespace trireme {

int usable_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
}

}  // namespace trireme
