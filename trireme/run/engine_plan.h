// The plan of the run that a configuration describes. No torch.
#pragma once
#include <trireme/plan/shard_bytes.h>
#include <trireme/plan/strategy.h>
#include <trireme/run/dataset.h>

namespace trireme {

// The launchers of a run.
struct Launchers {
  int nodes = 1;         // Each is on a host of its own; workers are dealt out in a row.
  bool elastic = false;  // Elastic jobs use TCP between hosts, and guard the shared update.
};

// The hosts and carriers of a run. Takes Gloo between hosts for comm.backend auto, as World does
// if the build has it and mpirun is not the launcher. Throws Error(invalid_argument) if a node
// would have no worker, and Error(unsupported) if the backend cannot join the hosts.
plan::Placement placement_of(const Config& config, const ResolvedStrategy& strategy,
                             const Launchers& launchers);

// The plan that the engine of such a run starts with. Its digest is the one in the run's report.
// `measured`: the costs of the model's blocks (MeasuredModel::costs()), which a cut by time or
// memory needs. Throws Error(unsupported) if it is empty and the cut needs it.
plan::EnginePlan engine_plan_of(const Config& config, const ResolvedStrategy& strategy,
                                const Dataset& data, const Launchers& launchers,
                                const std::vector<plan::BlockCost>& measured = {});

// [stage]: the bytes of a rank of the stage for parameters, gradients and the optimizer's state,
// by the formulas of docs/sharding.md without the block that is worked on. Empty if the plan's
// engine has no mesh, or a tensor axis.
std::vector<plan::ShardedBytes> bytes_of_stages(const Config& config,
                                                const plan::EnginePlan& plan);

}  // namespace trireme
