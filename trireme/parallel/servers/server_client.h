// A worker's side of parameter servers: it pushes gradients to all of them and pulls parameters,
// straight from and into the tensors of its model.
//
//   ServerClient servers(endpoints, token, {.placement = plan, .worker = 0}, parameters,
//   deadline); servers.initialise(deadline);  // The first worker's values count. for (int64_t
//   step = servers.pull(deadline); ...;) {
//     loss_of(batch).backward();
//     step = servers.push_pull(samples, deadline);
//   }
#pragma once
#include <trireme/net/requests/request_client.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/parallel/servers/server_wire.h>
#include <trireme/plan/placement_plan.h>
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

struct ServerClientOptions {
  plan::PlacementPlan placement;  // The same on all servers and workers.
  int worker = 0;
  int generation = 0;  // Of the job. The first worker of a new one ends the earlier ones.
  int workers = 0;     // In this generation; 0: as many as the servers know.
  // Called several times a second while a call waits for other workers. An exception of it ends
  // the call. May be null.
  std::function<void()> look = {};
  net::ChannelOptions channel = {};
};

// A batch that counts, in a round in which workers compute at their own pace.
struct CountedBatch {
  int64_t lease = 0;
  int worker = 0;
  std::optional<double> loss;  // Empty: it was skipped.
  int64_t samples = 0;
};

// The next task of a worker in a round.
struct ServerTurn {
  std::optional<int64_t> lease;        // Empty: the round is over.
  int64_t limit = 0;                   // The leases of the round that is over.
  bool stop = false, regroup = false;  // Some worker has asked for it.
  std::vector<CountedBatch> counted;   // Since the worker's last turn, in the order of updates.
  bool has_more = false;               // Others were counted too; the next turn has them.
};
// The facts that a worker tells when it asks for its next turn.
struct TurnWish {
  int64_t seen = 0;  // The counted batches that it knows.
  bool stop = false, regroup = false;
};
struct DoneLease {
  int64_t lease = 0;
  double loss = 0;
  std::vector<double> rates;  // The learning rates for its update.
};

// Used by one thread.
class ServerClient {
 public:
  // Connects to all servers, in their order, and joins. `parameters` are those of the placement,
  // contiguous and in its order; they stay the caller's model. Throws Error(invalid_argument)
  // naming the tensor that differs, Error(aborted) if the job is in a later generation, or as
  // net::RequestClient does.
  ServerClient(const std::vector<net::Endpoint>& servers, const std::string& token,
               ServerClientOptions options, std::vector<NamedTensor> parameters,
               Deadline deadline);
  ~ServerClient();

  // Sends the parameters' values as the first ones. If another worker was first, its values count;
  // they are all of one worker.
  void initialise(Deadline deadline);
  // Waits until this worker may begin its next step, and gets the parameters for it. What has not
  // changed does not travel. Returns the number of the step.
  int64_t pull(Deadline deadline);
  // Sends the gradients of the step that was begun last; `samples` are those whose mean they are,
  // and with 0 there are no gradients. Throws Error(corrupt) for one with NaN or infinity.
  // A parameter without gradient does not change. Calling it again after an error counts once.
  void push(int64_t samples, Deadline deadline);
  // Both at once: a push, and a pull of the next step.
  int64_t push_pull(int64_t samples, Deadline deadline);
  // This worker pushes no more, and nobody waits for it.
  void leave(Deadline deadline);

  // For workers that compute each step together, and agree on it among themselves: the servers
  // hold the gradients until a worker brings the update that all have agreed on.
  void hold(int64_t samples, Deadline deadline);
  // The update that follows the newest parameters of this worker, of the pushes of all workers.
  servers::ServerUpdate next_update(int workers) const;
  // The square of the norm of the mean gradient of an update whose pushes all servers hold.
  double squares(const servers::ServerUpdate& update, Deadline deadline);
  // All servers make the update, unless they have made it, and the parameters come.
  void follow(const servers::ServerUpdate& update, Deadline deadline);
  // The newest parameters.
  void refresh(Deadline deadline);

  // For workers that compute whole batches at their own pace (plan/lease_table.h). All workers
  // open a round alike; one that goes on in a later generation keeps its id.
  void open_round(int64_t id, int64_t leases, Deadline deadline);
  ServerTurn first_turn(const TurnWish& wish, Deadline deadline);
  // Pushes the gradients of the lease.
  ServerTurn next_turn(const DoneLease& done, int64_t samples, const TurnWish& wish,
                       Deadline deadline);
  // The batch of the lease counts as used, without an update. first_turn() gives another.
  void skip(int64_t lease, int64_t samples, Deadline deadline);

  // The state of all servers: parameters go into the model's tensors, and the state of the
  // optimizer is that of whole parameters. No worker pushes meanwhile.
  OptimizerState read_state(Deadline deadline);
  // Gives the servers the parameters of this worker and this state, as a version that nobody has.
  void write_state(const OptimizerState& state, Deadline deadline);
  std::vector<Json> facts(Deadline deadline);  // [server]

  // The versions of the parameters that this worker has, by server; -1: none.
  const std::vector<int64_t>& versions() const { return versions_; }
  // The worker has got these versions in another way.
  void have_versions(std::vector<int64_t> versions) { versions_ = std::move(versions); }
  // [server]: its version when this worker joined; -1: it has no values.
  const std::vector<int64_t>& versions_at_join() const { return at_join_; }
  bool has_lost_a_server() const;

 private:
  struct Server;
  struct Asked {
    servers::ServerReply reply;
    net::Head head;
  };
  void prepare_gradients(int64_t samples);
  servers::ServerRequest request_of(servers::ServerCall call, size_t server) const;
  net::Message gradients_for(size_t server, servers::ServerRequest request,
                             const std::string& text = {}) const;
  net::ChoosePlaces parameters_of(size_t server) const;
  // Sends a request to each server from `first` on, and returns when all have answered.
  template <typename Make>
  std::vector<net::Reply> ask_all(const char* name, size_t first, Deadline deadline,
                                  const Make& make);
  void take_parameters(size_t server, const servers::ServerReply& told);
  // The version that a server has at least, as far as this worker knows.
  int64_t version_of(size_t server) const { return std::max(versions_[server], at_join_[server]); }
  servers::ServerRequest waiting_request(servers::ServerCall call) const;
  // Asks server 0 until the worker may begin, and brings its decisions to the others.
  Json pull_from_clock(net::Message first, const std::string& wish, Deadline deadline);
  void bring(const Json& updates, Deadline deadline);
  void hold_at_others(int64_t samples, Deadline deadline);
  ServerTurn turn_in(const Json& told) const;

  ServerClientOptions options_;
  std::vector<NamedTensor> parameters_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<int64_t> versions_, at_join_;
  int64_t clock_ = 0;  // The step to push next.
};

}  // namespace trireme
