// A parameter server: it has a part of the model, takes the workers' gradients, updates, and hands
// out parameters (docs/parameter_server.md).
//
//   ParameterServer server({"127.0.0.1", 0}, token, {.placement = plan, .server = 0,
//                                                    .optimizer = SGD{.lr = 0.1},
//                                                    .consistency = {Consistency::async},
//                                                    .workers = 4});
//   world.set_value("address of " + world.task().name(), to_string(server.endpoint()));
//
// The first server has the clock (trireme/plan/push_clock.h): it decides which pushes make up
// which update. The others hold the pushes that they get until a worker brings them the decision.
// So all servers make the same updates in the same order, whichever worker is lost in between.
//
// With ps.replication above 1 a server also has copies of the pieces of those before it in the
// placement. A copy holds the same pushes and makes the same updates, so it has the same bits.
// When the first server of a chain is lost, workers call the next one instead. The copy of the
// first server's pieces follows its clock, and becomes the clock when a worker calls it as such.
#pragma once
#include <trireme/base/json.h>
#include <trireme/net/requests/request_server.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/parallel/servers/tables/row_table.h>
#include <trireme/plan/compression_plan.h>
#include <trireme/plan/placement_plan.h>
#include <trireme/plan/push_clock.h>
#include <trireme/plan/table_plan.h>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

struct ParameterServerOptions {
  plan::PlacementPlan placement;  // The same on all servers and workers, with the chains.
  int server = 0;                 // The number of this one.
  OptimizerFactory optimizer;     // It updates pieces: flat tensors of parts of parameters.
  plan::ConsistencyOptions consistency;
  int workers = 1;  // The number in the first generation of the job. Other workers are refused.
  // delay_compensated: the factor lambda of gradient x gradient x distance.
  double compensation = 0.04;
  // The form in which gradients come; the same on all servers and workers.
  plan::CompressionOptions compression = {};
  // The embedding tables whose rows live on the servers too; none by default. Their options are in
  // the order of the plan, and one entry counts for all tables. A learning rate goes up and down
  // with that of the optimizer's first group.
  plan::TablePlan tables = {};
  std::vector<TableOptions> table_options = {};
  // Gradients with NaN or infinity are refused, and their worker gets an error that names the
  // tensor.
  bool refuses_nonfinite = true;
  // A worker waits no longer for others.
  Milliseconds patience{60000};
  net::RequestServerOptions channel;
};

// The counts of a server's own pieces since the job began, also if it got them from a copy. A copy
// does not count pulls.
struct ParameterServerFacts {
  int64_t pushes = 0, late_pushes = 0, repeated_pushes = 0, pulls = 0, unchanged_pulls = 0;
  int64_t updates = 0;
  int64_t failovers = 0;  // The times that this server took the place of the one before it.
  // [updates between the pull of the parameters and the push of their gradients]: pushes.
  std::map<int64_t, int64_t> staleness = {};
  // Gradients that came before their push (ps.overlap); only of this process.
  int64_t early_pieces = 0;
  Json to_json() const;  // With the largest and the mean staleness.
  static ParameterServerFacts from_json(const Json& json);
};

class ParameterServer {
 public:
  // Listens, and serves from then on. Throws Error(invalid_argument | unsupported | io) naming the
  // option.
  ParameterServer(const net::Endpoint& listen, std::string token, ParameterServerOptions options);
  // Closes all connections. Workers that wait get Error(peer_lost).
  ~ParameterServer();

  // Any thread.
  net::Endpoint endpoint() const;
  ParameterServerFacts facts() const;
  // Whether it has the clock, and workers have begun.
  bool has_clock() const;
  // The server that has the clock: changes the consistency from now on. Returns the one of before.
  // Throws Error(invalid_argument) for options that do not fit, and on a server without the clock.
  plan::ConsistencyOptions change(const plan::ConsistencyOptions& consistency);
  // The worker was lost, and nobody waits for it. What it pushed counts. It may join again. To be
  // called on the server that has the clock, and on those with copies of it.
  void leave(int worker);

 private:
  struct Impl;
  Impl& impl_of(std::string_view header) const;
  net::Placement place_for(const net::Head& head) const;
  void handle(net::Request request, net::Responder responder);

  std::map<int, std::shared_ptr<Impl>> impls_;  // [server whose pieces they are]
  std::unique_ptr<net::RequestServer> requests_;
};

}  // namespace trireme
