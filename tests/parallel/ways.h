// Every way in which replicas can be kept alike, for tests of properties that all ways must have.
#pragma once
#include "models.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/utils/clip_grad.h>

namespace trireme::tests {

constexpr int kVirtualShards = 6;

struct Way {
  std::string name;
  int workers = 1, replicas = 1;
  std::vector<std::string> hosts = {};
  DataParallelOptions options = {};
  int size() const { return workers * replicas; }
};

inline std::vector<Way> with(std::vector<Way> ways, double clip_norm, const std::string& suffix) {
  for (Way& way : ways) {
    way.options.clip_norm = clip_norm;
    way.name += suffix;
  }
  return ways;
}
inline std::vector<Way> joined(std::vector<Way> ways, const std::vector<Way>& more) {
  ways.insert(ways.end(), more.begin(), more.end());
  return ways;
}
// The ways that give equal losses for equal batches: all but local steps.
inline std::vector<Way> exact_ways() {
  const DataParallelOptions shared{.share_parameters = true};
  DataParallelOptions guarded = shared;
  guarded.guard.wanted = true;
  return {{.name = "alone"},
          {.name = "threads", .replicas = 3},
          {.name = "hosts", .workers = 3, .hosts = {"a", "b", "c"}},
          {.name = "virtual_shards", .replicas = 3, .options = {.virtual_shards = kVirtualShards}},
          {.name = "shared_threads", .replicas = 3, .options = shared},
          {.name = "shared_guarded", .replicas = 2, .options = guarded},
          {.name = "shared_processes", .workers = 2, .options = shared},
          {.name = "shared_hosts", .workers = 3, .hosts = {"a", "a", "b"}, .options = shared}};
}

// Runs body(replica, net, group) on every rank; `make` makes the rank's net.
template <typename Make, typename Body>
void run(const Way& way, Make make, const OptimizerFactory& optimizer, Body body) {
  std::optional<Workers> workers;
  Groups groups;
  if (way.workers == 1) {
    groups = thread_groups(way.replicas);
  } else {
    workers.emplace(way.workers, world_options(), way.hosts);
    groups = workers->make_groups(way.replicas);
  }
  on_ranks(groups, [&](Group& group) {
    auto net = make();
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, optimizer, way.options);
    EXPECT_EQ(replica.shares_parameters(), way.options.share_parameters);
    body(replica, *net, group);
  });
  if (workers) workers->leave();
}

// Takes one step on `whole`. Each replica computes its part of it in `parts` micro-batches.
template <typename Net, typename Loss>
StepOutcome take_step(DataParallel& replica, Net& net, const Data& whole, Group& group, Loss loss,
                      int64_t parts = 1) {
  const bool has_shards = group.size() > 1 && replica.counters()["exchange"].contains("threads");
  if (has_shards) {
    const auto [first, last] = replica.shards();
    for (int shard = first; shard < last; ++shard) {
      const Data mine = whole.share(shard, kVirtualShards);
      for (int64_t part = 0; part < parts; ++part) {
        const Data piece = mine.share(static_cast<int>(part), static_cast<int>(parts));
        replica.backward(loss(net, piece), piece.size(), whole.size());
      }
      replica.end_shard();
    }
    return replica.step();
  }
  const Data mine = whole.share(group.rank(), group.size());
  for (int part = 0; part + 1 < parts; ++part) {
    const Data piece = mine.share(part, static_cast<int>(parts));
    replica.backward(loss(net, piece), piece.size());
  }
  const Data piece = mine.share(static_cast<int>(parts) - 1, static_cast<int>(parts));
  return replica.step(loss(net, piece), piece.size());
}

// Trains with torch's own optimizer on the whole batch, with gradients that share no memory.
// Returns the losses.
template <typename Net, typename Loss>
std::vector<double> train_alone(Net& net, const OptimizerFactory& factory, int steps,
                                int64_t samples, double clip_norm, Loss loss) {
  const auto optimizer = factory(state_of(net).parameters);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    const at::Tensor value = loss(net, data_of(samples, step));
    losses.push_back(value.template item<double>());
    std::vector<at::Tensor> inputs;
    for (const at::Tensor& parameter : net.parameters())
      if (parameter.requires_grad()) inputs.push_back(parameter);
    const auto gradients = torch::autograd::grad({value}, inputs, {}, std::nullopt, false,
                                                 /*allow_unused=*/true);
    for (size_t i = 0; i < inputs.size(); ++i)
      inputs[i].mutable_grad() = gradients[i].defined() ? gradients[i].clone() : at::Tensor();
    if (clip_norm > 0) torch::nn::utils::clip_grad_norm_(inputs, clip_norm);
    optimizer->step();
  }
  return losses;
}

}  // namespace trireme::tests
