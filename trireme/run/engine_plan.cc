#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/membership/roles.h>
#include <trireme/plan/mesh_plan.h>
#include <trireme/run/engine_plan.h>
#include <algorithm>

namespace trireme {
namespace {

plan::CollectiveTable table_of(const Config& config) {
  plan::CollectiveTable table;
  if (!config.world.table.empty())
    table = plan::CollectiveTable::parse(read_file(config.world.table), config.world.table);
  if (config.world.all_reduce != "auto")
    table.always(plan::Collective::all_reduce,
                 plan::algorithm_from_string(config.world.all_reduce));
  return table;
}

// [worker]: the number of its node.
std::vector<int> nodes_of(int workers, int nodes) {
  std::vector<int> all;
  for (int node = 0; node < nodes; ++node)
    all.insert(all.end(),
               static_cast<size_t>(membership::local_workers_of(workers, nodes, node).count),
               node);
  return all;
}

}  // namespace

plan::Placement placement_of(const Config& config, const ResolvedStrategy& strategy,
                             const Launchers& launchers) {
  const int workers = strategy.workers, replicas = strategy.replicas_per_worker;
  const int nodes = launchers.nodes;
  if (nodes < 1 || nodes > workers)
    throw Error(
        ErrorCode::invalid_argument, "cli",
        fmt::format("--nodes {} with {} worker{}", nodes, workers, workers == 1 ? "" : "s"),
        "at least 1 node, and at least one worker for each");
  if (config.world.backend == "shm" && nodes > 1)
    throw Error(
        ErrorCode::unsupported, "cli",
        fmt::format("comm.backend shm joins the processes of one host, and --nodes is {}", nodes),
        "comm.backend=auto, which takes shared memory inside each host");
  const plan::CollectiveTable table = table_of(config);
  if (workers == 1) return plan::on_one_host(replicas, "threads", table);
  const bool shares = config.world.backend == "auto" || config.world.backend == "shm";
  const std::string between = !shares ? config.world.backend : launchers.elastic ? "tcp" : "gloo";
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
                                const Dataset& data, const Launchers& launchers,
                                const std::vector<plan::BlockCost>& measured) {
  plan::DataParallelFacts facts;
  facts.placement = placement_of(config, strategy, launchers);
  facts.data = data_plan_of(config, data).options();
  facts.data->batch = strategy.batch.global;
  facts.parameters =
      models::parameter_shapes(model_for(config, data), data.input, reduced_dtype(config));
  facts.state_tensors.assign(facts.parameters.size(), state_tensors_of(config.optimizer));
  // Evaluation with averages puts other values into the parameters, and a guarded update cannot
  // wait for the norms of layers.
  const TrainerOptions& options = config.trainer;
  facts.share_parameters = may_share_parameters(options) && options.ema_decay == 0 &&
                           !(launchers.elastic && is_layerwise(config.optimizer));
  facts.buckets = options.buckets;
  facts.compression = options.compression;
  facts.local = options.local;
  facts.virtual_shards = options.virtual_shards;
  facts.division = options.division;
  facts.ps = servers_for(config);
  if (!plan::is_of_mesh(strategy.name)) return plan::plan_engine(strategy.name, facts);
  if (const std::string& cut = facts.division.pipeline.cut;
      measured.empty() && plan::needs_measured_blocks(cut))
    throw Error(ErrorCode::unsupported, "config",
                fmt::format("pipeline.cut is {}: the blocks are measured when training begins, "
                            "and a plan runs nothing",
                            cut),
                "trireme plan --measure, or pipeline.cut=parameters");
  facts.kept_types.assign(facts.parameters.size(), options.dtype);
  facts.shard_level = plan::shard_level_of(strategy.name, options.division.shard);
  for (const models::BlockSize& block : models::block_sizes(model_for(config, data), data.input)) {
    facts.blocks.push_back({.name = block.name, .parameters = block.elements});
    std::vector<int>& own = facts.block_parameters.emplace_back();
    for (size_t i = 0; i < facts.parameters.size(); ++i)
      if (std::ranges::find(block.parameters, facts.parameters[i].name) != block.parameters.end())
        own.push_back(static_cast<int>(i));
  }
  if (!measured.empty()) facts.blocks = measured;
  return plan::plan_engine(strategy.name, facts);
}

std::vector<plan::ShardedBytes> bytes_of_stages(const Config& config,
                                                const plan::EnginePlan& plan) {
  const int replicas = plan.replicas();
  const int64_t updated = plan::bytes_of(reduced_dtype(config)),
                kept = plan::bytes_of(config.trainer.dtype);
  std::vector<plan::ShardedBytes> all;
  for (const plan::StageParameters& stage : plan.stages) {
    int64_t elements = 0;
    for (const plan::TensorSpec& spec : stage.kept) elements += spec.elements();
    all.push_back(plan::sharded_bytes(replicas > 1 ? plan.shard_level : 0, replicas, elements,
                                      {.parameter = kept,
                                       .gradient = updated,
                                       .optimizer = state_tensors_of(config.optimizer) * updated,
                                       .master = kept == updated ? 0 : updated}));
  }
  return all;
}

}  // namespace trireme
