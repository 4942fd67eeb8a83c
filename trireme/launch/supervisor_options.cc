#include <trireme/launch/supervisor_options.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/process_id.h>
#include <trireme/membership/identity.h>
#include <trireme/membership/units.h>
#include <trireme/net/control.h>

namespace trireme::launch {
namespace {

constexpr size_t kDigitsOfMark = 16;

[[noreturn]] void refuse(const std::string& what, std::string_view remedy) {
  throw Error(ErrorCode::invalid_argument, "launch", what, remedy);
}

}  // namespace

void check_supervisor_options(const SupervisorOptions& options) {
  if (options.workers < 1)
    refuse(fmt::format("{} workers: a job has at least 1", options.workers),
           "--workers 1 or more");
  if (options.nodes < 1)
    refuse(fmt::format("{} nodes: a job has at least 1", options.nodes), "1 node or more");
  if (options.node < 0 || options.node >= options.nodes) {
    refuse(fmt::format("node {} of {}: nodes are numbered from 0 to {}", options.node,
                       options.nodes, options.nodes - 1),
           "a number in that range, another one on each node");
  }
  if (options.workers < options.nodes) {
    refuse(fmt::format("{} workers on {} nodes: each node has at least 1", options.workers,
                       options.nodes),
           fmt::format("--workers {} or more", options.nodes));
  }
  if (options.elastic &&
      (options.workers < options.elastic->minimum || options.workers > options.elastic->maximum))
    refuse(fmt::format("--elastic {}:{} with {} workers", options.elastic->minimum,
                       options.elastic->maximum, options.workers),
           "--workers between the two");
  if (options.elastic)
    membership::check_units(options.elastic->unit, "--unit", options.elastic->minimum,
                            options.elastic->maximum, options.workers);
  if (options.threads_per_worker < 0) {
    refuse(fmt::format("{} threads per worker: 0 (divide the cores evenly) or more",
                       options.threads_per_worker),
           "0");
  }
  if (options.command.empty())
    refuse("no programme to start", "trireme launch --workers 2 -- PROGRAM ARGUMENTS");
  if (options.nodes > 1 && options.rendezvous.port == 0 && !options.etcd) {
    refuse(fmt::format("rendezvous {}: the launchers of {} nodes need a fixed port to meet at",
                       options.rendezvous.describe(), options.nodes),
           "HOST:PORT of node 0, or etcd://HOST:PORT/JOBNAME, the same on each node");
  }
}

std::string token_of_job(const SupervisorOptions& options, const Environment& environment) {
  if (const auto token = membership::token_from(environment)) return *token;
  if (options.nodes > 1) {
    refuse(
        fmt::format("no job token: the launchers of {} nodes need the same one", options.nodes),
        "TRIREME_JOB_TOKEN or TRIREME_JOB_TOKEN_FILE with the output of `openssl rand -hex 32`, "
        "the same on each node");
  }
  return net::make_token();
}

watch::JobMark mark_of_job(const SupervisorOptions& options, const std::string& token) {
  // The digest covers the token, which is too long to be found from it.
  const std::string shared =
      options.nodes == 1 ? net::make_token()
                         : fmt::format("{} {}", token,
                                       options.etcd ? options.etcd->job
                                                    : std::to_string(options.rendezvous.port));
  return {sha256_hex("the folder of a job: " + shared).substr(0, kDigitsOfMark), options.nodes,
          ProcessId::of_this_process()};
}

}  // namespace trireme::launch
