#include <trireme/plan/server_plan.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <utility>

namespace trireme::plan {

PlacementPlan place_on_servers(const std::vector<TensorSpec>& parameters, const PsOptions& ps) {
  if (ps.servers < 1)
    throw Error(
        ErrorCode::invalid_argument, "plan",
        fmt::format("strategy.name is parameter_server, and there are {} servers", ps.servers),
        "--ps 1 or more");
  PlacementFacts facts{{}, ps.servers, replication_of(ps)};
  for (const TensorSpec& tensor : parameters)
    if (tensor.trainable) facts.tensors.push_back(tensor);
  return plan_placement(std::move(facts));
}

EnginePlan plan_servers(const DataParallelFacts& facts) {
  EnginePlan plan = plan_replicas("parameter_server", facts.placement, facts.parameters);
  plan.exchange = ExchangeKind::servers;
  plan.data = facts.data;
  plan.servers = place_on_servers(facts.parameters, facts.ps);
  return plan;
}

}  // namespace trireme::plan
