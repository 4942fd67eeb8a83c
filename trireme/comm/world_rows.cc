#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/comm/world_options.h>
#include <trireme/config/names.h>
#include <trireme/config/row.h>
#include <trireme/plan/collective_plan.h>

namespace trireme {

config::Rows rows_of(const WorldOptions*) {
  using O = WorldOptions;
  return config::all_of<O>(
      {config::row(
           &O::backend,
           {.name = "comm.backend",
            .meaning = "The backend that carries the bytes: threads inside a process, shm (shared "
                       "memory) inside a host, between hosts gloo, tcp (Trireme's own, "
                       "authenticated) or mpi (started by mpirun); auto: the first that fits.",
            .choices = config::one_of({"auto", "threads", "shm", "tcp", "gloo", "mpi"})}),
       config::row(&O::all_reduce,
                   {.name = "strategy.all_reduce",
                    .meaning = "The algorithm for sums between threads, in shared memory and over "
                               "tcp (docs/collectives.md); auto: by size, from comm.table.",
                    .choices =
                        [] {
                          std::vector<std::string> names;
                          for (const plan::Algorithm one :
                               plan::algorithms_of(plan::Collective::all_reduce))
                            names.emplace_back(plan::to_string(one));
                          return config::with("auto", std::move(names));
                        }}),
       config::row(
           &O::table,
           {.name = "comm.table",
            .meaning = "File that `trireme bench collectives --tune` wrote, with the fastest "
                       "algorithm for each size; empty: defaults. All ranks use rank 0's file.",
            .agreed = false}),
       config::no_row(&O::host),
       config::row(&O::interface, {.name = "comm.interface",
                                   .meaning = "Network interface or address to use; empty: "
                                              "loopback, or the route to the rendezvous.",
                                   .agreed = false}),
       config::row(&O::timeout, {.name = "comm.timeout",
                                 .meaning = "Longest wait for other ranks in one operation.",
                                 .range = config::at_least(1)}),
       config::row(
           &O::heartbeat_interval,
           {.name = "comm.heartbeat_interval",
            .meaning = "Time between two heartbeats, by which a worker says that it lives.",
            .range = config::at_least(1)}),
       config::row(
           &O::heartbeat_timeout,
           {.name = "comm.heartbeat_timeout",
            .meaning =
                "A worker that is silent for this long is lost; 0s: 10s, in an elastic job 2s.",
            .range = config::at_least(0)}),
       config::row(
           &O::straggler_factor,
           {.name = "comm.straggler_factor",
            .meaning =
                "A worker is a straggler if its work in a step takes more than this many times "
                "the others'. It is named with the phase that costs the time; 0: no worker is.",
            .range = config::at_least(0)})});
}

void check(const WorldOptions& options) {
  if (options.heartbeat_timeout > Milliseconds(0) &&
      options.heartbeat_timeout <= options.heartbeat_interval)
    throw Error(
        ErrorCode::invalid_argument, "comm",
        fmt::format("comm.heartbeat_timeout is {} ms and comm.heartbeat_interval is {} ms: the "
                    "timeout must be longer",
                    options.heartbeat_timeout.count(), options.heartbeat_interval.count()),
        fmt::format("comm.heartbeat_timeout={}ms", 10 * options.heartbeat_interval.count()));
}

}  // namespace trireme
