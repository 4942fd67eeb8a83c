#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/config/names.h>
#include <trireme/plan/mesh_plan.h>
#include <trireme/plan/strategy.h>
#include <algorithm>
#include <limits>

namespace trireme::plan {

namespace {

constexpr int kAnyNumber = std::numeric_limits<int>::max();

// A strategy that comes with Trireme. Its engine is a row of parallel/strategies.cc.
struct Strategy {
  std::string name;
  int most_workers, most_replicas;  // Of replicas in each worker.
  EnginePlan (*plan)(const DataParallelFacts& facts);
};
const std::vector<Strategy>& shipped() {
  static const std::vector<Strategy> rows = {
      {"one_device", 1, 1, plan_data_parallel},
      {"mirrored", 1, kAnyNumber, plan_data_parallel},
      {"multi_worker", kAnyNumber, kAnyNumber, plan_data_parallel},
      {"pipeline", kAnyNumber, kAnyNumber, plan_mesh},
      {"sharded", kAnyNumber, kAnyNumber, plan_sharded},
      {"tensor", kAnyNumber, kAnyNumber, plan_mesh},
  };
  return rows;
}
const Strategy* find_shipped(const std::string& name) {
  const auto found = std::ranges::find(shipped(), name, &Strategy::name);
  return found == shipped().end() ? nullptr : &*found;
}

config::Names& known_strategies() {
  static config::Names names([] {
    std::vector<std::string> all;
    for (const Strategy& row : shipped()) all.push_back(row.name);
    return all;
  }());
  return names;
}

}  // namespace

EnginePlan plan_engine(const std::string& strategy, const DataParallelFacts& facts) {
  const Strategy* const row = find_shipped(strategy);
  return row ? row->plan(facts) : plan_replicas(strategy, facts.placement, facts.parameters);
}

bool is_of_mesh(const std::string& strategy) {
  const Strategy* const row = find_shipped(strategy);
  return row && row->plan != plan_data_parallel;
}

std::vector<std::string> strategies() { return known_strategies().all(); }
void add_strategy(const std::string& name) { known_strategies().add(name); }

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
           "strategy.name=mirrored (threads) or multi_worker (processes)");
  return name;
}

}  // namespace trireme::plan
