// Parameter servers and workers of a small model, in one process over real channels.
#pragma once
#include "engines.h"

#include <torch/nn/modules/linear.h>

#include <trireme/net/control.h>
#include <trireme/parallel/servers/parameter_server.h>
#include <trireme/parallel/servers/server_client.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::tests {

struct ServedNet : torch::nn::Module {
  explicit ServedNet(int64_t width = 9) : width_(width) {
    in = register_module("in", torch::nn::Linear(6, width));
    out = register_module("out", torch::nn::Linear(width, 4));
    to(at::kDouble);
    for (auto& parameter : parameters()) {
      const at::NoGradGuard no_grad;
      parameter.copy_(
          at::randn(parameter.sizes(), at::detail::createCPUGenerator(7), at::kDouble) * 0.3);
    }
  }
  at::Tensor forward(const at::Tensor& x) { return out(at::tanh(in(x))); }
  int64_t width_;
  torch::nn::Linear in{nullptr}, out{nullptr};
};

inline Deadline soon() { return Deadline::after(Milliseconds(20000)); }

inline plan::PlacementPlan placement_of(ServedNet& net, int servers, int replication = 0) {
  plan::PlacementFacts facts;
  facts.servers = servers;
  facts.replication = replication;
  for (const NamedTensor& parameter : state_of(net).parameters)
    facts.tensors.push_back(
        {parameter.name, parameter.tensor.sizes().vec(), plan::DType::float64, true});
  return plan_placement(facts);
}

// A job's servers, in this process.
struct Servers {
  Servers(int count, int workers, const plan::ConsistencyOptions& consistency,
          OptimizerFactory optimizer = SGD{.lr = 0.2, .momentum = 0.9},
          const std::function<void(ParameterServerOptions&)>& change = {}, int copies = 0)
      : replication(copies) {
    ServedNet net;
    for (int i = 0; i < count; ++i) {
      ParameterServerOptions options{.placement = placement_of(net, count, replication),
                                     .server = i,
                                     .optimizer = optimizer,
                                     .consistency = consistency,
                                     .workers = workers};
      if (change) change(options);
      all.push_back(std::make_unique<ParameterServer>(net::Endpoint{"127.0.0.1", 0}, token,
                                                      std::move(options)));
    }
  }
  ServerPlaces endpoints() const {
    ServerPlaces result;
    for (const auto& server : all) result.push_back(server->endpoint());
    return result;
  }
  const int replication;
  const std::string token = net::make_token();
  std::vector<std::unique_ptr<ParameterServer>> all;
};

// Servers that a test ends and replaces, as a job sees them: it knows which processes are lost.
class MortalServers {
 public:
  using Make = std::function<ParameterServerOptions(int server)>;
  MortalServers(int count, Make make) : make_(std::move(make)), places_(count), lost_(count) {
    for (int i = 0; i < count; ++i) start(i);
  }

  void start(int server) {
    auto started =
        std::make_unique<ParameterServer>(net::Endpoint{"127.0.0.1", 0}, token, make_(server));
    const std::lock_guard lock(mutex_);
    auto& place = places_[static_cast<size_t>(server)];
    place = ServerPlace(started->endpoint(), place ? place->incarnation + 1 : 1);
    servers_[server] = std::move(started);
  }
  // The job hears of it after a moment.
  void kill(int server, Milliseconds until_it_is_known = Milliseconds(2)) {
    auto ends = [&] {
      const std::lock_guard lock(mutex_);
      return std::move(servers_[server]);
    }();
    ends.reset();
    std::this_thread::sleep_for(until_it_is_known);
    declare_lost(server);
  }
  void declare_lost(int server) {
    const std::lock_guard lock(mutex_);
    lost_[static_cast<size_t>(server)] = places_[static_cast<size_t>(server)]->incarnation;
  }
  bool is_lost(int server, int incarnation) const {
    const std::lock_guard lock(mutex_);
    return incarnation <= lost_[static_cast<size_t>(server)];
  }
  // Empty for one that is lost.
  std::optional<ServerPlace> place(int server) const {
    const std::lock_guard lock(mutex_);
    const auto& place = places_[static_cast<size_t>(server)];
    return place->incarnation <= lost_[static_cast<size_t>(server)] ? std::nullopt : place;
  }
  ServerPlaces places() const {
    ServerPlaces all;
    for (int i = 0; i < std::ssize(places_); ++i) all.push_back(place(i));
    return all;
  }
  ParameterServer& at(int server) { return *servers_.at(server); }
  const std::string token = net::make_token();

 private:
  const Make make_;
  mutable std::mutex mutex_;
  std::vector<std::optional<ServerPlace>> places_;  // The newest of each server.
  std::vector<int> lost_;                           // The newest incarnation that is lost.
  std::map<int, std::unique_ptr<ParameterServer>> servers_;
};

struct Worker {
  Worker(const Servers& servers, int number, net::RequestPath path = net::RequestPath::automatic,
         const plan::CompressionOptions& compression = {}) {
    ServerClientOptions options{
        .placement = placement_of(net, static_cast<int>(servers.all.size()), servers.replication),
        .worker = number};
    options.channel.path = path;
    options.compression = compression;
    client = std::make_unique<ServerClient>(servers.endpoints(), servers.token, options,
                                            state_of(net).parameters, soon());
  }
  double backward(const Data& data) {
    net.zero_grad();
    const at::Tensor loss = cross_entropy(net.forward(data.x), data.y);
    loss.backward();
    return loss.item<double>();
  }
  ServedNet net;
  std::unique_ptr<ServerClient> client;
};

// The losses of steps on whole batches on one device.
inline std::vector<double> losses_on_one_device(OptimizerFactory make, int steps) {
  ServedNet net;
  const auto optimizer = make(state_of(net).parameters);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const Data data = data_of(24, step);
    optimizer->zero_grad();
    const at::Tensor loss = cross_entropy(net.forward(data.x), data.y);
    loss.backward();
    optimizer->step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

// The mean losses of the workers, which share each batch.
inline std::vector<double> losses_of_workers(const Servers& servers, int workers, int steps,
                                             net::RequestPath path = net::RequestPath::automatic,
                                             const plan::CompressionOptions& compression = {}) {
  std::vector<std::vector<double>> parts(static_cast<size_t>(workers));
  std::vector<std::jthread> threads;
  for (int w = 0; w < workers; ++w)
    threads.emplace_back([&, w] {
      Worker worker(servers, w, path, compression);
      if (w == 0) worker.client->initialise(soon());
      int64_t step = worker.client->pull(soon());
      for (int i = 0; i < steps; ++i) {
        EXPECT_EQ(step, i);
        const Data mine = data_of(24, i).share(w, workers);
        parts[static_cast<size_t>(w)].push_back(worker.backward(mine) *
                                                static_cast<double>(mine.size()) / 24);
        step = worker.client->push_pull(mine.size(), soon());
      }
    });
  threads.clear();
  std::vector<double> losses(static_cast<size_t>(steps));
  for (const auto& part : parts)
    for (size_t i = 0; i < losses.size(); ++i) losses[i] += part[i];
  return losses;
}

}  // namespace trireme::tests
