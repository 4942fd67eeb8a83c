// `trireme plan`: prints what a run would do, for any world size, or a pipeline. It does not run
// it or load LibTorch.
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/pipeline_arguments.h>
#include <trireme/run/engine_plan.h>
#include <trireme/run/places.h>
#include <algorithm>
#include <optional>

namespace trireme::cli {
namespace {

struct PlanArguments {
  ConfigSource source;
  int workers = 1;
  std::optional<int> ps;
  Launchers launchers;
  int64_t batches = 0;
  bool json = false;
  PipelineArguments pipeline;
};

// The plan's largest all-reduce by an algorithm of Trireme's own, or null if there is none.
const plan::Operation* largest_all_reduce(const plan::EnginePlan& plan) {
  const auto bytes_of = [](const plan::Operation& operation) {
    const bool is_own = operation.name == "all_reduce" && !operation.algorithm.empty();
    return is_own ? operation.elements * plan::bytes_of(operation.dtype) : -1;
  };
  const auto largest =
      std::max_element(plan.operations.begin(), plan.operations.end(),
                       [&](const auto& a, const auto& b) { return bytes_of(a) < bytes_of(b); });
  return largest != plan.operations.end() && bytes_of(*largest) >= 0 ? &*largest : nullptr;
}

// The rounds of an operation, between the ranks that take part in it.
plan::CollectivePlan rounds_of(const plan::EnginePlan& plan, const plan::Operation& operation) {
  const plan::Placement& placement = plan.placement;
  const auto carries = [&](const plan::Carrier& carrier) {
    const auto takes_part = [&](int rank) {
      return operation.operations[static_cast<size_t>(rank)] > 0;
    };
    return carrier.path == operation.path && std::ranges::count_if(carrier.ranks, takes_part) > 1;
  };
  const auto inside = std::find_if(placement.inside.begin(), placement.inside.end(), carries);
  const plan::Carrier& carrier =
      inside != placement.inside.end() ? *inside : placement.between.value();
  // In a mesh, only the replicas of one stage take part.
  std::vector<int> hosts;
  int ranks = 0;
  for (size_t i = 0; i < carrier.ranks.size(); ++i) {
    if (operation.operations[static_cast<size_t>(carrier.ranks[i])] == 0) continue;
    ++ranks;
    if (!carrier.hosts.empty()) hosts.push_back(carrier.hosts[i]);
  }
  const plan::CollectivePlan rounds =
      plan::plan_collective(plan::Collective::all_reduce,
                            plan::algorithm_from_string(operation.algorithm), ranks, 0, hosts);
  check(rounds);
  return rounds;
}

int show(const PlanArguments& arguments) {
  ConfigSource source = arguments.source;
  if (arguments.ps)
    source.options.emplace_back("--ps", fmt::format("ps.servers={}", *arguments.ps));
  const Config config = load_config(source);
  const ResolvedStrategy strategy = check_with_workers(config, arguments.workers);
  const Dataset dataset = read_data(config);
  const plan::EnginePlan plan = engine_plan_of(config, strategy, dataset, arguments.launchers);
  check(plan);
  const plan::Operation* const all_reduce = largest_all_reduce(plan);

  const plan::DataPlan data(plan.data.value());
  std::vector<std::vector<int64_t>> batches;
  plan::DataPosition position;
  for (int64_t i = 0; i < arguments.batches; ++i, position = data.next(position))
    batches.push_back(data.global_batch(position));

  if (arguments.json) {
    Json out = plan.to_json();
    out["strategy"] = strategy.name;
    out["workers"] = strategy.workers;
    out["world_size"] = strategy.world_size;
    out["batch"] = strategy.batch.to_json();
    for (const plan::ShardedBytes& bytes : bytes_of_stages(config, plan))
      out["bytes_of_stages"].push_back(bytes.to_json());
    if (all_reduce) out["all_reduce"] = rounds_of(plan, *all_reduce).to_json();
    if (arguments.batches > 0) {
      // The batches count within the training part. If that part was split off, "split" lists the
      // samples of the file that it holds.
      out["batches"] = batches;
      out["split"] = {{"train", dataset.split.train}, {"test", dataset.split.test}};
    }
    fmt::print("{}\n", out.dump(2));
    return kExitOk;
  }
  fmt::print("strategy: {} ({} workers x {} replicas)\nbatch: {}\n\n{}\n{}\n{}\n", strategy.name,
             strategy.workers, strategy.replicas_per_worker, strategy.batch.describe(),
             plan.mesh.describe(), data.describe(plan.replicas()), plan.describe());
  const auto of_stages = bytes_of_stages(config, plan);
  for (size_t stage = 0; stage < of_stages.size(); ++stage)
    fmt::print("a rank of stage {} has {}\n", stage, of_stages[stage].describe());
  if (all_reduce)
    fmt::print("the all_reduce of {}, over {}:\n\n{}\n", all_reduce->content, all_reduce->path,
               rounds_of(plan, *all_reduce).describe());
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
  command.option("--ps", arguments->ps, "Parameter servers to plan for");
  command.option("--nodes", arguments->launchers.nodes,
                 "Hosts to plan for, with the workers dealt out in a row; --workers counts all");
  command.flag("--elastic", arguments->launchers.elastic, "Plan a generation of an elastic job");
  command.option("--batches", arguments->batches,
                 "Also list the samples of this many global batches");
  command.flag("--json", arguments->json, "Print JSON");
  arguments->pipeline.add_to(command);
  for (const char* const option : {"config", "--set", "--workers", "--ps", "--nodes", "--batches"})
    for (const char* const pipeline : {"--schedule", "--schedule-file"})
      command.excludes(option, pipeline);
  command.footer(
      "Examples: trireme plan examples/digits.yaml --workers 4\n"
      "          trireme plan --schedule 1f1b --stages 4 --microbatches 8");
  command.action([arguments] {
    const PipelineArguments& pipeline = arguments->pipeline;
    return pipeline.are_given() ? pipeline.show(arguments->json) : show(*arguments);
  });
}

}  // namespace trireme::cli
