#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/cli/config_plan.h>
#include <trireme/faults/faults.h>
#include <trireme/launch/worker_environment.h>
#include <algorithm>

namespace trireme::cli {
namespace {

plan::CollectiveTable table_of(const Config& config) {
  plan::CollectiveTable table;
  if (!config.comm.table.empty())
    table = plan::CollectiveTable::parse(read_file(config.comm.table), config.comm.table);
  if (config.strategy.all_reduce != "auto")
    table.always(plan::Collective::all_reduce,
                 plan::algorithm_from_string(config.strategy.all_reduce));
  return table;
}

// [worker]: the number of its node.
std::vector<int> nodes_of(int workers, int nodes) {
  std::vector<int> all;
  for (int node = 0; node < nodes; ++node)
    all.insert(all.end(),
               static_cast<size_t>(launch::local_workers_of(workers, nodes, node).count), node);
  return all;
}

// The tensors of state that the optimizer keeps for each trainable parameter
// (parallel/fused/fused_optimizer.h).
int state_tensors_of(const Config& config) {
  const auto& o = config.optimizer;
  if (o.name == "sgd") return o.momentum != 0 ? 1 : 0;
  if (o.name == "rmsprop") return o.momentum > 0 ? 2 : 1;
  if (o.name == "adagrad" || o.name == "lars") return 1;
  return 2;
}

}  // namespace

plan::BucketOptions bucket_options(const Config& config) {
  return {config.strategy.bucket_bytes, config.strategy.first_bucket_bytes};
}

plan::CompressionOptions compression_options(const Config& config) {
  return {config.strategy.compression, config.strategy.compression_rank,
          config.strategy.compression_ratio};
}

plan::LocalSgdOptions local_sgd_options(const Config& config) {
  return {config.strategy.local_steps, config.strategy.local_after,
          config.strategy.local_momentum};
}

bool may_share_parameters(const Config& config) {
  const std::vector<Fault> faults = parse_faults(config.inject.faults);
  return config.strategy.share_parameters &&
         std::none_of(faults.begin(), faults.end(),
                      [](const Fault& fault) { return fault.kind == FaultKind::corrupt; });
}

plan::Placement placement_of(const Config& config, const ResolvedStrategy& strategy,
                             const Launchers& launchers) {
  const int workers = strategy.workers, replicas = strategy.replicas_per_worker;
  const int nodes = launchers.nodes;
  if (nodes < 1 || nodes > workers)
    throw Error(
        ErrorCode::invalid_argument, "cli",
        fmt::format("--nodes {} with {} worker{}", nodes, workers, workers == 1 ? "" : "s"),
        "at least 1 node, and at least one worker for each");
  if (config.comm.backend == "shm" && nodes > 1)
    throw Error(
        ErrorCode::unsupported, "cli",
        fmt::format("comm.backend shm joins the processes of one host, and --nodes is {}", nodes),
        "comm.backend=auto, which takes shared memory inside each host");
  const plan::CollectiveTable table = table_of(config);
  if (workers == 1) return plan::on_one_host(replicas, "threads", table);
  const bool shares = config.comm.backend == "auto" || config.comm.backend == "shm";
  const std::string between = !shares ? config.comm.backend : launchers.elastic ? "tcp" : "gloo";
  const std::vector<int> node_of = nodes_of(workers, nodes);
  plan::Placement placement;
  placement.table = table;
  plan::Carrier leaders{between, {}, {}};
  for (int worker = 0; worker < workers; ++worker) {
    const int node = node_of[static_cast<size_t>(worker)];
    const bool begins_host =
        !shares || worker == 0 || node != node_of[static_cast<size_t>(worker) - 1];
    if (begins_host) {
      leaders.ranks.push_back(worker * replicas);
      // TCP tells hosts apart by their addresses.
      leaders.hosts.push_back(between == "tcp" ? node : placement.host_count());
      placement.inside.push_back({"threads", {}, {}});
    }
    plan::Carrier& host = placement.inside.back();
    if (!host.ranks.empty()) host.path = "shm";
    for (int replica = 0; replica < replicas; ++replica) {
      host.ranks.push_back(worker * replicas + replica);
      placement.hosts.push_back(placement.host_count() - 1);
    }
  }
  if (placement.host_count() > 1) placement.between = leaders;
  return placement;
}

plan::EnginePlan engine_plan_of(const Config& config, const ResolvedStrategy& strategy,
                                const Dataset& data, const Launchers& launchers) {
  plan::DataParallelFacts facts;
  facts.placement = placement_of(config, strategy, launchers);
  facts.data = data_plan_of(config, data).options();
  facts.parameters =
      models::parameter_shapes(model_for(config, data), data.input, reduced_dtype(config));
  facts.state_tensors.assign(facts.parameters.size(), state_tensors_of(config));
  // Evaluation with averages puts other values into the parameters, and a guarded update cannot
  // wait for the norms of layers.
  const bool is_layerwise = config.optimizer.name == "lars" || config.optimizer.name == "lamb";
  facts.share_parameters = may_share_parameters(config) && config.train.ema_decay == 0 &&
                           !(launchers.elastic && is_layerwise);
  facts.buckets = bucket_options(config);
  facts.compression = compression_options(config);
  facts.local = local_sgd_options(config);
  facts.virtual_shards = config.reproducible.virtual_shards;
  return plan::plan_data_parallel(facts);
}

}  // namespace trireme::cli
