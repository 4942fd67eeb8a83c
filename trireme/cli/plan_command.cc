// `trireme plan`: what a run would do, for any world size, without running it or loading LibTorch.
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/config_data.h>
#include <trireme/cli/paths.h>
#include <trireme/plan/bucket_plan.h>
#include <trireme/plan/collective_plan.h>
#include <trireme/plan/data_plan.h>
#include <trireme/plan/mesh.h>
#include <algorithm>

namespace trireme::cli {
namespace {

struct PlanArguments {
  ConfigSource source;
  int workers = 1;
  int64_t batches = 0;
  bool json = false;
};

int show(const PlanArguments& arguments) {
  if (arguments.workers < 1)
    throw Error(ErrorCode::invalid_argument, "cli", fmt::format("--workers {} is below 1", arguments.workers), "--workers 1 or more");
  const Config config = load_config(arguments.source);
  const ResolvedStrategy strategy = check_with_workers(config, arguments.workers);
  const Dataset dataset = read_data(config);
  const auto parameters = models::parameter_shapes(model_for(config, dataset), dataset.input, reduced_dtype(config));

  const plan::Mesh mesh({{"data", strategy.world_size}});
  const plan::DataPlan data(
      {dataset.train_samples, config.data.batch, static_cast<uint64_t>(config.train.seed), config.data.shuffle, config.data.drop_last});
  const plan::BucketPlan buckets = plan::plan_buckets(parameters, {config.strategy.bucket_bytes, config.strategy.first_bucket_bytes});
  const std::string algorithm = config.strategy.all_reduce == "auto" ? "direct" : config.strategy.all_reduce;
  const plan::CollectivePlan all_reduce =
      plan::plan_collective(plan::Collective::all_reduce, plan::algorithm_from_string(algorithm), strategy.world_size);
  check(mesh);
  check(data, strategy.world_size);
  check(buckets, parameters);
  check(all_reduce);
  // Between processes Gloo carries the all-reduce by an algorithm of its own; the plan is what threads of one process run.
  const bool runs_plan = strategy.workers == 1;

  std::vector<std::vector<int64_t>> batches;
  plan::DataPosition position;
  for (int64_t i = 0; i < arguments.batches; ++i, position = data.next(position)) batches.push_back(data.global_batch(position));

  if (arguments.json) {
    Json out = {{"strategy", strategy.name},
                {"workers", strategy.workers},
                {"world_size", strategy.world_size},
                {"mesh", mesh.to_json()},
                {"data", data.to_json(strategy.world_size)},
                {"buckets", buckets.to_json()},
                {"all_reduce", all_reduce.to_json()}};
    out["all_reduce"]["carrier"] = runs_plan ? "threads" : "gloo";
    if (arguments.batches > 0) {
      // Batches count within the training part; where that was split off, it lists which samples of the file it holds.
      out["batches"] = batches;
      out["split"] = {{"train", dataset.split.train}, {"test", dataset.split.test}};
    }
    Json shapes = Json::array();
    for (const auto& spec : parameters)
      shapes.push_back({{"name", spec.name}, {"shape", spec.shape}, {"dtype", plan::to_string(spec.dtype)}});
    out["parameters"] = shapes;
    fmt::print("{}\n", out.dump(2));
    return kExitOk;
  }
  fmt::print("strategy: {} ({} workers x {} replicas)\n\n{}\n{}\n{}\n", strategy.name, strategy.workers, strategy.replicas_per_worker,
             mesh.describe(), data.describe(strategy.world_size), buckets.describe());
  fmt::print("{}", all_reduce.describe());
  if (!runs_plan) fmt::print("(between processes Gloo reduces by its own ring; threads of one process run the plan above)\n");
  for (size_t i = 0; i < batches.size(); ++i) fmt::print("batch {}: {}\n", i, fmt::join(batches[i], " "));
  return kExitOk;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand("plan", "Print the plans of a configuration for any world size, without running it");
  command->add_option("config", arguments->source.file, "YAML file");
  command->add_option("--set", arguments->source.set, "key=value, after the file; may be repeated")->expected(1)->take_all();
  command->add_option("--workers", arguments->workers, "Worker processes to plan for");
  command->add_option("--batches", arguments->batches, "Also list the samples of the first so many global batches");
  command->add_flag("--json", arguments->json, "As JSON");
  command->footer("Example: trireme plan examples/digits.yaml --workers 4");
  command->callback([arguments, &action] { action = [arguments] { return show(*arguments); }; });
}

}  // namespace trireme::cli
