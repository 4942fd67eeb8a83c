// A worker's side of parameter servers: it pushes gradients to all of them and pulls parameters,
// straight from and into the tensors of its model.
//
//   ServerClient servers(endpoints, token, {.placement = plan, .worker = 0}, parameters,
//   deadline); servers.initialise(deadline);                  // The first worker's values count.
//   for (int64_t step = servers.pull(deadline); ...;) {
//     loss_of(batch).backward();
//     step = servers.push_pull(samples, deadline);
//   }
#pragma once
#include <trireme/net/requests/request_client.h>
#include <trireme/parallel/module_state.h>
#include <trireme/plan/placement_plan.h>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

struct ServerClientOptions {
  plan::PlacementPlan placement;  // The same on all servers and workers.
  int worker = 0;
  net::ChannelOptions channel;
};

// Used by one thread.
class ServerClient {
 public:
  // Connects to all servers, in their order, and joins. `parameters` are those of the placement,
  // contiguous and in its order; they stay the caller's model. Throws Error(invalid_argument)
  // naming the tensor that differs, or as net::RequestClient does.
  ServerClient(const std::vector<net::Endpoint>& servers, const std::string& token,
               ServerClientOptions options, std::vector<NamedTensor> parameters,
               Deadline deadline);
  ~ServerClient();

  // Sends the parameters' values as the first ones. If another worker was first, its values count;
  // they are all of one worker.
  void initialise(Deadline deadline);
  // Waits until this worker may begin its next step, and gets the parameters for it. What has not
  // changed does not travel. Returns the number of the step, the largest of all servers: under
  // backup workers each may leave out others.
  int64_t pull(Deadline deadline);
  // Sends the gradients of the step that was begun last; `samples` are those whose mean they are,
  // and with 0 there are no gradients. Throws Error(corrupt) for one with NaN or infinity.
  // A parameter without gradient does not change. Calling it again after an error counts once.
  void push(int64_t samples, Deadline deadline);
  // Both at once: a push, and a pull of the next step.
  int64_t push_pull(int64_t samples, Deadline deadline);
  // This worker pushes no more, and nobody waits for it.
  void leave(Deadline deadline);

  // The newest versions that this worker has, by server.
  const std::vector<int64_t>& versions() const { return versions_; }

 private:
  struct Server;
  void prepare_gradients(int64_t samples);
  net::Message gradients_for(size_t server, int64_t samples, bool pulls) const;
  net::ChoosePlaces parameters_of(size_t server) const;
  // Sends a request to each server, and gives the answers to `take` when all are there.
  template <typename Make, typename Take>
  void ask_all(const char* name, Deadline deadline, const Make& make, const Take& take);
  int64_t take_parameters(size_t server, const net::Reply& reply);
  int64_t next_step() const;

  ServerClientOptions options_;
  std::vector<NamedTensor> parameters_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<int64_t> versions_;
};

}  // namespace trireme
