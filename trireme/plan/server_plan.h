// Plans strategy parameter_server: which servers have which parts of the model. Pure.
#pragma once
#include <trireme/plan/data_parallel_plan.h>
#include <vector>

namespace trireme::plan {

// The places of the trained ones of these parameters. Throws Error(invalid_argument) if there is
// no server.
PlacementPlan place_on_servers(const std::vector<TensorSpec>& parameters, const PsOptions& ps);

// Throws Error(invalid_argument) naming the key and the remedy: no server, or options of the
// consistency that do not fit each other or the number of workers.
EnginePlan plan_servers(const DataParallelFacts& facts);

}  // namespace trireme::plan
