// `trireme plan`: what a run would do, for any world size, without running it or loading LibTorch.
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/config_data.h>
#include <trireme/cli/paths.h>
#include <trireme/plan/bucket_plan.h>
#include <trireme/plan/collective_table.h>
#include <trireme/plan/data_plan.h>
#include <trireme/plan/mesh.h>
#include <trireme/plan/shard_tree.h>
#include <algorithm>
#include <optional>

namespace trireme::cli {
namespace {

struct PlanArguments {
  ConfigSource source;
  int workers = 1;
  int64_t batches = 0;
  bool json = false;
};

plan::SizeChoices all_reduce_choices(const Config& config, const std::string& path, int ranks) {
  plan::CollectiveTable table;
  if (!config.comm.table.empty())
    table = plan::CollectiveTable::parse(read_file(config.comm.table), config.comm.table);
  if (config.strategy.all_reduce != "auto")
    table.always(plan::Collective::all_reduce,
                 plan::algorithm_from_string(config.strategy.all_reduce));
  return table.choices(path, plan::Collective::all_reduce, ranks, {});
}

int64_t largest_bucket(const plan::BucketPlan& plan) {
  int64_t bytes = 0;
  for (const plan::Bucket& bucket : plan.buckets)
    bytes = std::max(bytes, bucket.elements * plan::bytes_of(bucket.dtype));
  return bytes;
}

int show(const PlanArguments& arguments) {
  if (arguments.workers < 1)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--workers {} is below 1", arguments.workers), "--workers 1 or more");
  const Config config = load_config(arguments.source);
  const ResolvedStrategy strategy = check_with_workers(config, arguments.workers);
  const Dataset dataset = read_data(config);
  const auto parameters =
      models::parameter_shapes(model_for(config, dataset), dataset.input, reduced_dtype(config));

  const plan::Mesh mesh({{"data", strategy.world_size}});
  const plan::DataPlan data({dataset.train_samples, config.data.batch,
                             static_cast<uint64_t>(config.train.seed), config.data.shuffle,
                             config.data.drop_last, config.reproducible.virtual_shards});
  std::optional<plan::ShardTree> shard_tree;
  if (config.reproducible.virtual_shards > 0) {
    shard_tree = plan::plan_shard_tree(config.reproducible.virtual_shards, strategy.world_size);
    check(*shard_tree);
  }
  const plan::BucketPlan buckets = plan::plan_buckets(
      parameters, {config.strategy.bucket_bytes, config.strategy.first_bucket_bytes});
  const bool shares_memory = config.comm.backend == "auto" ||
                             config.comm.backend == "shm";  // If the workers are on one host.
  const std::string path = strategy.workers == 1 ? "threads" : shares_memory ? "shm" : "tcp";
  const plan::SizeChoices choices = all_reduce_choices(config, path, strategy.world_size);
  const plan::CollectivePlan all_reduce = plan::plan_collective(
      plan::Collective::all_reduce,
      choices[plan::choose(choices, largest_bucket(buckets))].algorithm, strategy.world_size);
  check(mesh);
  check(data, strategy.world_size);
  check(buckets, parameters);
  check(all_reduce);
  // Gloo and MPI have algorithms of their own; the plan is what ranks that share memory run, and
  // TCP.
  const bool runs_plan = strategy.workers == 1 || shares_memory || config.comm.backend == "tcp";

  std::vector<std::vector<int64_t>> batches;
  plan::DataPosition position;
  for (int64_t i = 0; i < arguments.batches; ++i, position = data.next(position))
    batches.push_back(data.global_batch(position));

  if (arguments.json) {
    Json out = {{"strategy", strategy.name},
                {"workers", strategy.workers},
                {"world_size", strategy.world_size},
                {"mesh", mesh.to_json()},
                {"data", data.to_json(strategy.world_size)},
                {"buckets", buckets.to_json()},
                {"all_reduce", all_reduce.to_json()}};
    if (shard_tree) out["shard_tree"] = shard_tree->to_json();
    out["all_reduce"]["carrier"] = strategy.workers == 1 ? "threads" : config.comm.backend;
    out["all_reduce"]["choices"] = plan::describe(choices);
    if (arguments.batches > 0) {
      // Batches count within the training part; where that was split off, it lists which samples of
      // the file it holds.
      out["batches"] = batches;
      out["split"] = {{"train", dataset.split.train}, {"test", dataset.split.test}};
    }
    Json shapes = Json::array();
    for (const auto& spec : parameters)
      shapes.push_back(
          {{"name", spec.name}, {"shape", spec.shape}, {"dtype", plan::to_string(spec.dtype)}});
    out["parameters"] = shapes;
    fmt::print("{}\n", out.dump(2));
    return kExitOk;
  }
  fmt::print("strategy: {} ({} workers x {} replicas)\n\n{}\n{}\n{}\n", strategy.name,
             strategy.workers, strategy.replicas_per_worker, mesh.describe(),
             data.describe(strategy.world_size), buckets.describe());
  if (shard_tree) fmt::print("{}\n", shard_tree->describe());
  fmt::print("all_reduce over {}: {}; the largest bucket:\n\n{}", path, plan::describe(choices),
             all_reduce.describe());
  if (!runs_plan)
    fmt::print(
        "(comm.backend {} sums by an algorithm of its own; threads, shm and tcp run the plan "
        "above)\n",
        config.comm.backend);
  for (size_t i = 0; i < batches.size(); ++i)
    fmt::print("batch {}: {}\n", i, fmt::join(batches[i], " "));
  return kExitOk;
}

}  // namespace

void add_plan(Command app) {
  auto arguments = std::make_shared<PlanArguments>();
  Command command = app.subcommand(
      "plan", "Print the plans of a configuration for any world size, without running it");
  command.option("config", arguments->source.file, "YAML file");
  command.repeated("--set", arguments->source.set, "key=value, after the file; may be repeated");
  command.option("--workers", arguments->workers, "Worker processes to plan for");
  command.option("--batches", arguments->batches,
                 "Also list the samples of the first so many global batches");
  command.flag("--json", arguments->json, "As JSON");
  command.footer("Example: trireme plan examples/digits.yaml --workers 4");
  command.action([arguments] { return show(*arguments); });
}

}  // namespace trireme::cli
