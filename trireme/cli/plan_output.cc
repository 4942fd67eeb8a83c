#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/cli/config_keys.h>
#include <trireme/cli/plan_output.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/service/addresses.h>
#include <trireme/plan/sample_order.h>
#include <trireme/plan/split.h>
#include <trireme/run/data_service.h>
#include <trireme/run/engine_plan.h>
#include <trireme/run/input_plan.h>
#include <trireme/run/places.h>
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace trireme::cli {
namespace {

// The numbers, or a text for large data sets: nobody reads so many numbers.
Json json_of(const plan::Subset& samples) {
  return samples.size() <= plan::kLargestOrderTable ? Json(samples.numbers())
                                                    : Json(samples.describe());
}

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

// The activations of a run, by its measured blocks.
struct PlannedMemory {
  std::optional<plan::PipelineMemory> stages;
  std::optional<plan::MemoryPlan> replica;

  Json to_json() const { return stages ? stages->to_json() : replica->to_json(); }
};

PlannedMemory memory_by(const PlanMeasures& measures, const plan::EnginePlan& plan) {
  PlannedMemory memory;
  if (plan.pipeline)
    memory.stages = measures.memory_of_stages(plan);
  else
    memory.replica = measures.memory_of_replica();
  return memory;
}

void print_memory_of_stages(const plan::PipelineMemory& memory, const plan::EnginePlan& plan) {
  for (size_t stage = 0; stage < memory.peak_bytes.size(); ++stage)
    fmt::print("stage {} holds {} of activations at most\n", stage,
               format_bytes(memory.peak_bytes[stage]));
  for (size_t block = 0; block < memory.decisions.size(); ++block)
    fmt::print("  {:<20} {}\n", plan.cut->blocks[block], plan::to_string(memory.decisions[block]));
}

void print_memory(const std::optional<PlannedMemory>& memory, const plan::EnginePlan& plan,
                  const Config& config) {
  if (!memory) {
    if (!config.trainer.memory.is_plain())
      fmt::print(
          "activations: memory.policy {} needs measured blocks; --measure measures them "
          "now, and a run when it begins\n",
          config.trainer.memory.policy);
  } else if (memory->stages) {
    print_memory_of_stages(*memory->stages, plan);
  } else {
    fmt::print("{}\n", memory->replica->describe());
  }
}

}  // namespace

void PlanArguments::add_to(Command command) {
  command.option("config", source.file, "YAML file");
  command.repeated("--set", source.set, "key=value, after the file; may be repeated");
  command.settings(key_meant_by);
  command.option("--workers", workers, "Worker processes to plan for");
  command.option("--ps", ps, "Parameter servers to plan for");
  command.option("--nodes", launchers.nodes,
                 "Hosts to plan for, with the workers dealt out in a row; --workers counts all");
  command.flag("--elastic", launchers.elastic, "Plan a generation of an elastic job");
  command.option("--batches", batches, "Also list the samples of this many global batches");
  command.flag("--measure", measure,
               "Measure the blocks of the model first, for plans of memory and cuts by time or "
               "memory; this loads LibTorch");
  command.flag("--json", json, "Print JSON");
}

std::vector<std::string> PlanArguments::words() const {
  std::vector<std::string> words = {source.file.string()};
  if (source.file.empty()) words.clear();
  const auto add = [&](const char* option, const std::string& value) {
    words.insert(words.end(), {option, value});
  };
  for (const std::string& setting : source.set) add("--set", setting);
  add("--workers", std::to_string(workers));
  if (ps) add("--ps", std::to_string(*ps));
  add("--nodes", std::to_string(launchers.nodes));
  add("--batches", std::to_string(batches));
  for (const auto& [flag, is_given] : std::map<const char*, bool>{
           {"--elastic", launchers.elastic}, {"--measure", measure}, {"--json", json}})
    if (is_given) words.emplace_back(flag);
  return words;
}

int show_plan(const PlanArguments& arguments, const MeasureModel& measure,
              const FindFunctions& find_functions) {
  ConfigSource source = arguments.source;
  if (arguments.ps)
    source.options.emplace_back("--ps", fmt::format("ps.servers={}", *arguments.ps));
  const Config config = load_config(source);
  const ResolvedStrategy strategy = check_with_workers(config, arguments.workers);
  // Without a library, the programme that trains may register functions of its own.
  std::vector<std::string> unknown;
  const data::Stages own_stages = stages_with_functions(config);
  if (find_functions && !config.library.empty())
    find_functions(own_stages);
  else
    for (const data::Stage& stage : own_stages) unknown.push_back(stage.describe());
  const Dataset dataset = read_data(config);
  require_one_length(config, dataset, strategy.batch);
  std::optional<PlanMeasures> measures;
  if (measure) measures = measure(config, strategy);
  const plan::EnginePlan plan =
      engine_plan_of(config, strategy, dataset, arguments.launchers,
                     measures ? measures->costs() : std::vector<plan::BlockCost>());
  check(plan);
  std::optional<PlannedMemory> memory;
  if (measures) memory = memory_by(*measures, plan);
  const plan::Operation* const all_reduce = largest_all_reduce(plan);

  const plan::DataPlan data(plan.data.value());
  std::vector<std::vector<int64_t>> batches;
  plan::DataPosition position;
  for (int64_t i = 0; i < arguments.batches; ++i, position = data.next(position))
    batches.push_back(data.global_batch(position));

  if (arguments.json) {
    Json out = plan.to_json();
    out["strategy"] = strategy.name;
    out["device"] = config.trainer.device;
    out["workers"] = strategy.workers;
    out["input_plan"] = input_plan_of(config).to_json();
    const auto [stages, test_stages] = data::stages_of(config.data);
    out["data_stages"] = data::to_json(stages);
    out["data_test_stages"] = data::to_json(test_stages);
    out["unknown_functions"] = unknown;
    out["data_service"] = data::service_addresses(config.data.service);
    out["world_size"] = strategy.world_size;
    out["batch"] = strategy.batch.to_json();
    for (const plan::ShardedBytes& bytes : bytes_of_stages(config, plan))
      out["bytes_of_stages"].push_back(bytes.to_json());
    if (!dataset.facts.is_null()) out["input"] = dataset.facts;
    if (memory) out["memory"] = memory->to_json();
    if (all_reduce) out["all_reduce"] = rounds_of(plan, *all_reduce).to_json();
    if (arguments.batches > 0) {
      // The batches count within the training part. If that part was split off, "split" lists the
      // samples of the file that it holds.
      out["batches"] = batches;
      out["split"] = {{"train", json_of(dataset.split.train)},
                      {"test", json_of(dataset.split.test)}};
    }
    fmt::print("{}\n", out.dump(2));
    return kExitOk;
  }
  fmt::print("strategy: {} ({} workers x {} replicas)\n", strategy.name, strategy.workers,
             strategy.replicas_per_worker);
  if (config.trainer.device != "cpu")
    fmt::print(
        "device: {}, one for each replica of a host; gradients are staged through the "
        "host unless comm.backend is nccl\n",
        config.trainer.device);
  fmt::print("{}", input_plan_of(config).describe());
  for (const std::string& stage : unknown)
    fmt::print("  {}: this function is not known here; a programme that registers it can train\n",
               stage);
  if (const std::string service = describe_data_service(config); !service.empty())
    fmt::print("data service: {}\n", service);
  fmt::print("{}", dataset.about);
  fmt::print("batch: {}\n\n{}\n{}\n{}\n", strategy.batch.describe(), plan.mesh.describe(),
             data.describe(plan.replicas()), plan.describe());
  const auto of_stages = bytes_of_stages(config, plan);
  for (size_t stage = 0; stage < of_stages.size(); ++stage)
    fmt::print("a rank of stage {} has {}\n", stage, of_stages[stage].describe());
  print_memory(memory, plan, config);
  if (all_reduce)
    fmt::print("the all_reduce of {}, over {}:\n\n{}\n", all_reduce->content, all_reduce->path,
               rounds_of(plan, *all_reduce).describe());
  for (size_t i = 0; i < batches.size(); ++i)
    fmt::print("batch {}: {}\n", i, fmt::join(batches[i], " "));
  return kExitOk;
}

}  // namespace trireme::cli
