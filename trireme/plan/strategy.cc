#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/plan/mesh_plan.h>
#include <trireme/plan/server_plan.h>
#include <trireme/plan/strategy.h>
#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

namespace trireme::plan {

namespace {

constexpr int kAnyNumber = std::numeric_limits<int>::max();

constexpr StrategyFeatures kDataParallel{.clip_norm = true,
                                         .compression = true,
                                         .local_steps = true,
                                         .virtual_shards = true,
                                         .loss_scaling = true,
                                         .sync_batch_norm = true,
                                         .memory = true,
                                         .offload = true};
// Parameters are there once, so nothing may need copies of them.
constexpr StrategyFeatures kCentral{.clip_norm = true,
                                    .compression = true,
                                    .loss_scaling = true,
                                    .sync_batch_norm = true,
                                    .memory = true,
                                    .offload = true,
                                    .averages = false};
constexpr StrategyFeatures kOnMesh{.clip_norm = true,
                                   .loss_scaling = true,
                                   .memory = true,
                                   .offload = true,
                                   .equal_replicas = false,
                                   .divides = true};

constexpr StrategyFeatures kWithServers{.clip_norm = true,
                                        .compression = true,
                                        .sync_batch_norm = true,
                                        .memory = true,
                                        .servers = true};

// A strategy that comes with Trireme. Its engine is a row of parallel/strategies.cc.
struct Strategy {
  std::string name;
  int most_workers, most_replicas;  // Of replicas in each worker.
  EnginePlan (*plan)(const DataParallelFacts& facts);
  const StrategyFeatures& features;
};
const std::vector<Strategy>& shipped() {
  static const std::vector<Strategy> rows = {
      {"one_device", 1, 1, plan_data_parallel, kDataParallel},
      {"mirrored", 1, kAnyNumber, plan_data_parallel, kDataParallel},
      {"multi_worker", kAnyNumber, kAnyNumber, plan_data_parallel, kDataParallel},
      {"central_storage", 1, kAnyNumber, plan_data_parallel, kCentral},
      {"pipeline", kAnyNumber, kAnyNumber, plan_mesh, kOnMesh},
      {"sharded", kAnyNumber, kAnyNumber, plan_sharded, kOnMesh},
      {"tensor", kAnyNumber, kAnyNumber, plan_mesh, kOnMesh},
      {"parameter_server", kAnyNumber, 1, plan_servers, kWithServers},
  };
  return rows;
}
const Strategy* find_shipped(const std::string& name) {
  const auto found = std::ranges::find(shipped(), name, &Strategy::name);
  return found == shipped().end() ? nullptr : &*found;
}

// The strategies that a programme adds, in their order. Any thread.
class AddedStrategies {
 public:
  void add(const std::string& name, const StrategyFeatures& features) {
    const std::lock_guard lock(mutex_);
    names_.push_back(name);
    features_[name] = features;
  }
  std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }
  std::optional<StrategyFeatures> find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = features_.find(name);
    return found == features_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
  std::map<std::string, StrategyFeatures> features_;
};
AddedStrategies& added() {
  static AddedStrategies strategies;
  return strategies;
}

}  // namespace

EnginePlan plan_engine(const std::string& strategy, const DataParallelFacts& facts) {
  const Strategy* const row = find_shipped(strategy);
  return row ? row->plan(facts) : plan_replicas(strategy, facts.placement, facts.parameters);
}

bool is_of_mesh(const std::string& strategy) {
  const Strategy* const row = find_shipped(strategy);
  return row && row->features.divides;
}

bool is_in_threads(const std::string& strategy) {
  return strategy == "mirrored" || strategy == "central_storage";
}

std::vector<std::string> strategies() {
  std::vector<std::string> all;
  for (const Strategy& row : shipped()) all.push_back(row.name);
  for (std::string& name : added().names()) all.push_back(std::move(name));
  return all;
}

void add_strategy(const std::string& name, const StrategyFeatures& features) {
  added().add(name, features);
}

std::optional<StrategyFeatures> features_of(const std::string& strategy) {
  const Strategy* const row = find_shipped(strategy);
  return row ? std::optional(row->features) : added().find(strategy);
}

std::string resolve_strategy(const std::string& name, int workers, int replicas) {
  if (name == "auto")
    return workers > 1 ? "multi_worker" : replicas > 1 ? "mirrored" : "one_device";
  const auto refuse = [&](const std::string& what, const char* remedy) {
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("strategy.name is {}, which is {}", name, what), remedy);
  };
  const Strategy* const row = find_shipped(name);
  if (!row) return name;
  if (workers > row->most_workers)
    refuse(fmt::format("one process, but there are {} workers", workers),
           "strategy.name=multi_worker, or one worker (--workers 1), with replicas if mirrored");
  if (replicas > row->most_replicas)
    refuse(fmt::format("one replica, but there are {} replicas (strategy.replicas)", replicas),
           "strategy.name=mirrored (threads) or multi_worker (processes), or strategy.replicas=1");
  return name;
}

}  // namespace trireme::plan
