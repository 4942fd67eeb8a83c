// The options of a job with several launchers, one on each host.
#pragma once
#include <trireme/cli/command_line.h>
#include <trireme/launch/supervisor.h>
#include <string>

namespace trireme::cli {

struct NodeOptions {
  int nodes = 1, node = 0;
  std::string rendezvous;

  void add_to(Command command) {
    command.option("--nodes", nodes,
                   "Launchers in the job, one on each host; --workers counts all hosts' workers");
    command.option("--node", node, "The number of this launcher; launcher 0 runs the rendezvous");
    command.option("--rendezvous", rendezvous,
                   "HOST:PORT of node 0 that the other hosts reach (default: 127.0.0.1 and a "
                   "free port), or the place of the job in etcd: "
                   "etcd://HOST:PORT[,HOST:PORT...]/JOBNAME");
  }
  void apply(launch::SupervisorOptions& options) const {
    options.nodes = nodes;
    options.node = node;
    if (net::is_etcd_url(rendezvous)) {
      options.etcd = net::parse_etcd_url(rendezvous);
      options.rendezvous = {};
    } else if (!rendezvous.empty()) {
      options.rendezvous = net::parse_endpoint(rendezvous);
    }
  }
};

}  // namespace trireme::cli
