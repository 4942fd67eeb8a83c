// Jobs whose servers a test ends and replaces: workers with push and pull, and engines.
#pragma once
#include "server_job.h"

#include <trireme/parallel/own_pace.h>
#include <trireme/parallel/servers/server_access.h>
#include <trireme/parallel/servers/server_engine.h>
#include <memory>
#include <utility>
#include <vector>

namespace trireme::lost_servers {

using tests::MortalServers;
using tests::ServedNet;
using tests::soon;

inline constexpr int64_t kBatch = 24;

struct Shape {
  int servers = 2, replication = 2, workers = 2;
};

inline plan::PlacementPlan placement_of(const std::vector<NamedTensor>& parameters,
                                        const Shape& shape) {
  return plan::plan_placement({specs_of(parameters), shape.servers, shape.replication});
}

template <typename Net>
MortalServers::Make options_of(const Shape& shape, plan::ConsistencyOptions consistency,
                               OptimizerFactory optimizer) {
  return [=](int server) {
    Net net;
    return ParameterServerOptions{.placement = placement_of(state_of(net).parameters, shape),
                                  .server = server,
                                  .optimizer = optimizer,
                                  .consistency = consistency,
                                  .workers = shape.workers,
                                  .refuses_nonfinite = false};
  };
}

// A worker hears of losses from `is_lost`; null: as the job does.
struct Worker {
  Worker(const MortalServers& servers, const Shape& shape, int number, IsServerLost is_lost = {},
         int generation = 0) {
    if (!is_lost) is_lost = [&](int server, int which) { return servers.is_lost(server, which); };
    client = std::make_unique<ServerClient>(
        servers.places(), servers.token,
        ServerClientOptions{.placement = placement_of(state_of(net).parameters, shape),
                            .worker = number,
                            .generation = generation,
                            .is_lost = std::move(is_lost),
                            .why_lost = [](int, int) { return "it was killed"; },
                            .look = [] {}},
        state_of(net).parameters, soon());
  }
  double backward(const tests::Data& data) {
    net.zero_grad();
    const at::Tensor loss = tests::cross_entropy(net.forward(data.x), data.y);
    loss.backward();
    return loss.item<double>();
  }
  ServedNet net;
  std::unique_ptr<ServerClient> client;
};

// ---- Engines ----

inline ServerAccess access_to(MortalServers& servers, const Shape& shape,
                              plan::ConsistencyOptions consistency) {
  ServerAccess access;
  access.options.servers = shape.servers;
  access.options.replication = shape.replication;
  access.options.consistency = consistency;
  access.options.patience = Milliseconds(20000);
  access.token = servers.token;
  access.look = [] {};
  access.find = [&](Deadline) { return servers.places(); };
  access.find_again = [&](int server) { return servers.place(server); };
  access.is_lost = [&](int server, int which) { return servers.is_lost(server, which); };
  return access;
}

inline std::unique_ptr<Engine> engine_of(const std::shared_ptr<Group>& group,
                                         const std::shared_ptr<tests::Mlp>& net,
                                         const ServerAccess& access,
                                         const OptimizerFactory& optimizer, double clip_norm = 0) {
  EngineSetting setting = tests::setting_of(group, net, optimizer);
  setting.strategy = "parameter_server";
  setting.options.clip_norm = clip_norm;
  setting.servers = std::make_shared<ServerAccess>(access);
  return make_server_engine(setting);
}

}  // namespace trireme::lost_servers
