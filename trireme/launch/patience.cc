#include <trireme/config/row.h>
#include <trireme/launch/patience.h>

namespace trireme::launch {

config::Rows rows_of(const Patience*) {
  using O = Patience;
  return config::all_of<O>(
      {config::row(
           &O::stop_grace,
           {.name = "launch.stop_grace",
            .meaning =
                "After a request to stop, workers have this long to save and end; then they are "
                "killed. A checkpoint that is being written when a worker is lost has as long.",
            .range = config::at_least(0),
            .agreed = false}),
       config::row(&O::loss_grace,
                   {.name = "launch.loss_grace",
                    .meaning = "After a worker was lost and the job cannot continue, the other "
                               "workers have this long to end by themselves.",
                    .range = config::at_least(0),
                    .agreed = false}),
       config::row(&O::launcher_grace,
                   {.name = "comm.launcher_grace",
                    .meaning = "Workers of an elastic job continue for this long after their "
                               "launcher died; then they save and end.",
                    .range = config::at_least(0)}),
       config::row(&O::stall_timeout,
                   {.name = "comm.stall_timeout",
                    .meaning = "A worker for which the others wait this long is named with its "
                               "phase and place; nothing is ended.",
                    .range = config::at_least(1)})});
}

}  // namespace trireme::launch
