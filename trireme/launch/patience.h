// How long a launcher waits for workers before it says or does something.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/config/rows.h>

namespace trireme::launch {

struct Patience {
  // The time from SIGTERM, which the launcher passes on, to SIGKILL. After a worker was lost, a
  // worker that writes a checkpoint has this time to finish it.
  Milliseconds stop_grace{30000};
  // The time after which the others are killed when a worker was lost.
  Milliseconds loss_grace{5000};
  // The time for which the workers of an elastic job on one node continue without the launcher.
  // Then they save and end.
  Milliseconds launcher_grace{60000};
  // The supervisor names a worker for which the others have waited this long.
  Milliseconds stall_timeout{10000};
};
config::Rows rows_of(const Patience*);

}  // namespace trireme::launch
