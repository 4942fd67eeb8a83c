#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/comm/gloo/gloo_group.h>
#include <trireme/comm/mpi/mpi_group.h>
#include <trireme/comm/nccl/nccl_group.h>
#include <trireme/comm/world_options.h>
#include <algorithm>
#include <vector>

namespace trireme::comm {
namespace {

void check_backend(const std::string& backend, const membership::Identity& identity) {
  std::vector<std::string> here{"auto", "threads", "shm", "tcp"};
  if (gloo_is_compiled_in()) here.push_back("gloo");
  if (mpi_is_compiled_in()) here.push_back("mpi");
  if (nccl_is_compiled_in()) here.push_back("nccl");
  if (std::find(here.begin(), here.end(), backend) == here.end())
    throw Error(ErrorCode::unsupported, "comm",
                fmt::format("comm.backend '{}' is not in this build", backend),
                fmt::format("{}", fmt::join(here, ", ")));
  if (backend == "mpi" && identity.workers > 1 &&
      identity.launcher != membership::Launcher::mpirun)
    throw Error(ErrorCode::invalid_argument, "comm",
                "comm.backend mpi joins workers that mpirun started, and these "
                "were started otherwise",
                "mpirun -n N PROGRAM, or comm.backend: auto");
}

}  // namespace

void check(const WorldOptions& options, const membership::Identity& identity) {
  trireme::check(options);
  check_backend(options.backend, identity);
  const bool can_regroup =
      options.backend == "auto" || options.backend == "shm" || options.backend == "tcp";
  if (identity.elastic && !can_regroup)
    throw Error(ErrorCode::unsupported, "comm",
                fmt::format("comm.backend {} in an elastic job: it cannot "
                            "continue after a peer is lost",
                            options.backend),
                "auto, shm or tcp");
  if (options.timeout <= Milliseconds(0))
    throw Error(ErrorCode::invalid_argument, "comm",
                fmt::format("comm.timeout of {} ms", options.timeout.count()),
                "a time above 0, such as 60s");
}

// The backend between hosts is MPI under mpirun, which knows the fabric. Otherwise it is Gloo,
// which is proven at scale, or Trireme's own TCP if both were left out.
std::string carrier_between_hosts(const std::string& backend,
                                  const membership::Identity& identity) {
  if (backend != "auto" && backend != "shm") return backend;
  if (identity.elastic) return "tcp";  // Its waits end as soon as a lost worker is known.
  if (identity.launcher == membership::Launcher::mpirun && mpi_is_compiled_in()) return "mpi";
  return gloo_is_compiled_in() ? "gloo" : "tcp";
}

plan::CollectiveTable table_of(const WorldOptions& options) {
  plan::CollectiveTable table =
      options.table.empty()
          ? plan::CollectiveTable()
          : plan::CollectiveTable::parse(read_file(options.table), options.table);
  choose_by_name(table, options.all_reduce);
  return table;
}

void choose_by_name(plan::CollectiveTable& table, const std::string& all_reduce) {
  if (all_reduce != "auto")
    table.always(plan::Collective::all_reduce, plan::algorithm_from_string(all_reduce));
}

}  // namespace trireme::comm
