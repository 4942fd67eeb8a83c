// The strategies by name: where each one runs, and the plan of its engine. The functions are pure,
// but for the list of names, to which register_strategy() (parallel/engine.h) adds.
#pragma once
#include <trireme/plan/data_parallel_plan.h>
#include <trireme/plan/strategy_features.h>
#include <optional>
#include <string>
#include <vector>

namespace trireme::plan {

// The names that ship, such as "one_device", "mirrored" (threads of one process) and
// "multi_worker" (processes), and those that were added. Any thread.
std::vector<std::string> strategies();
void add_strategy(const std::string& name, const StrategyFeatures& features);
// Empty for a name of none of strategies().
std::optional<StrategyFeatures> features_of(const std::string& strategy);
// Whether the engine of that strategy, one that ships, has a mesh of plan::DivisionOptions.
bool is_of_mesh(const std::string& strategy);
// Whether all replicas of that strategy are threads of one process.
bool is_in_threads(const std::string& strategy);

// The plan with which the engine of that strategy starts. A strategy that was added has one that
// lists no operations.
EnginePlan plan_engine(const std::string& strategy, const DataParallelFacts& facts);

// The strategy that `name` means for these numbers of workers and of replicas in each; `auto` is
// chosen by them. A name of none of strategies() stays as it is. With `replicas` below 1 the
// strategy decides their number. Throws Error(invalid_argument) if the strategy contradicts the
// numbers, and names those that fit.
std::string resolve_strategy(const std::string& name, int workers, int replicas);

}  // namespace trireme::plan
