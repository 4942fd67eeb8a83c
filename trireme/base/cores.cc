#include <sched.h>
#include <trireme/base/control_groups.h>
#include <trireme/base/cores.h>
#include <algorithm>
#include <cmath>

namespace trireme {

int usable_cores() {
  cpu_set_t cores;
  const int allowed =
      sched_getaffinity(0, sizeof cores, &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
  const double quota = room_in_control_groups().cores;
  return quota > 0 ? std::clamp(static_cast<int>(std::ceil(quota)), 1, allowed) : allowed;
}

}  // namespace trireme
