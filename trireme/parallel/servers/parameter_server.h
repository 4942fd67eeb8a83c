// A parameter server: it has a part of the model, takes the workers' gradients, updates, and hands
// out parameters (docs/parameter_server.md).
//
//   ParameterServer server({"127.0.0.1", 0}, token, {.placement = plan, .server = 0,
//                                                    .optimizer = SGD{.lr = 0.1},
//                                                    .consistency = {Consistency::async},
//                                                    .workers = 4});
//   world.set_value("address of " + world.task().name(), to_string(server.endpoint()));
//
// Server 0 has the clock (trireme/plan/push_clock.h): it decides which pushes make up which
// update. The other servers hold the pushes that they get until a worker brings them the decision.
// So all servers make the same updates in the same order, whichever worker is lost in between.
#pragma once
#include <trireme/base/json.h>
#include <trireme/net/requests/request_server.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/plan/placement_plan.h>
#include <trireme/plan/push_clock.h>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace trireme {

struct ParameterServerOptions {
  plan::PlacementPlan placement;  // The same on all servers and workers.
  int server = 0;                 // The number of this one.
  OptimizerFactory optimizer;     // It updates pieces: flat tensors of parts of parameters.
  plan::ConsistencyOptions consistency;
  int workers = 1;  // The number in the first generation of the job. Other workers are refused.
  // delay_compensated: the factor lambda of gradient x gradient x distance.
  double compensation = 0.04;
  // Gradients with NaN or infinity are refused, and their worker gets an error that names the
  // tensor.
  bool refuses_nonfinite = true;
  // A worker waits no longer for others.
  Milliseconds patience{60000};
  net::RequestServerOptions channel;
};

// The counts of a server since its start.
struct ParameterServerFacts {
  int64_t pushes = 0, late_pushes = 0, repeated_pushes = 0, pulls = 0, unchanged_pulls = 0;
  int64_t updates = 0;  // The version of the parameters.
  // [updates between the pull of the parameters and the push of their gradients]: pushes.
  std::map<int64_t, int64_t> staleness;
  Json to_json() const;  // With the largest and the mean staleness.
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
  // Server 0: changes the consistency from now on. Throws Error(invalid_argument) for options that
  // do not fit.
  void change(const plan::ConsistencyOptions& consistency);
  // Server 0: the worker was lost, and nobody waits for it. What it pushed counts. It may join
  // again.
  void leave(int worker);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
  std::unique_ptr<net::RequestServer> requests_;
};

}  // namespace trireme
