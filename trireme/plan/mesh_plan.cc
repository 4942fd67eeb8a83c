#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/text.h>
#include <trireme/plan/mesh_operations.h>
#include <trireme/plan/mesh_plan.h>
#include <trireme/plan/pipeline_memory.h>
#include <trireme/plan/pipeline_text.h>
#include <algorithm>

namespace trireme::plan {
namespace {

// The bubble is then at most a fifth of the time.
constexpr int kMicrobatchesOfAStage = 4;

// Throws Error(invalid_argument) unless the options have the numbers of a plan from text.
PipelinePlan fitting(PipelinePlan plan, const DivisionOptions& division) {
  const auto require = [](std::string_view key, int given, int in_text) {
    if (given != in_text)
      throw Error(ErrorCode::invalid_argument, "config",
                  fmt::format("{} is {}, but the schedule has {}", key, given, in_text),
                  fmt::format("{}={}", key, in_text));
  };
  require("mesh.pipeline", division.mesh.pipeline, plan.facts.stages);
  if (const int given = division.pipeline.microbatches; given > 0)
    require("pipeline.microbatches", given, plan.facts.microbatches);
  if (const int given = division.pipeline.chunks; given > 0)
    require("pipeline.chunks", given, plan.facts.chunks);
  return plan;
}

}  // namespace

PipelinePlan pipeline_of(const DivisionOptions& division) {
  const int stages = division.mesh.pipeline;
  const PipelineOptions& options = division.pipeline;
  const int usual = stages == 1 ? 1 : kMicrobatchesOfAStage * stages;
  try {
    if (is_schedule_text(options.schedule))
      return fitting(parse_pipeline(options.schedule), division);
    PipelinePlan plan =
        plan_pipeline({.schedule = options.schedule,
                       .stages = stages,
                       .microbatches = options.microbatches > 0 ? options.microbatches : usual,
                       .chunks = options.chunks});
    check(plan);
    return plan;
  } catch (const Error& error) {
    const ErrorParts parts = parts_of(error);
    // The message of a schedule as text has a grid of its steps, which says more than the text.
    const std::string key = is_schedule_text(options.schedule)
                                ? "pipeline.schedule"
                                : "pipeline.schedule is " + options.schedule;
    throw Error(error.code(), "config",
                fmt::format("{}: {}{}", key, parts.what, more_lines_of(error)), parts.remedy);
  }
}

// Level 2 sends no more than level 0.
int shard_level_of(const std::string& strategy, const ShardOptions& options) {
  return options.level == 0 && strategy == "sharded" ? 2 : options.level;
}

bool may_share_instead(const DataParallelFacts& facts) {
  return facts.share_parameters && facts.division.shard.level < 3 &&
         !facts.division.mesh.divides_model() && facts.division.pipeline.microbatches == 0 &&
         facts.placement.host_count() == 1 && facts.placement.ranks() > 1;
}

EnginePlan plan_sharded(const DataParallelFacts& facts) {
  if (!may_share_instead(facts)) return plan_mesh(facts);
  EnginePlan plan = plan_data_parallel(facts);
  return plan.exchange == ExchangeKind::shared ? plan : plan_mesh(facts);
}

Partition cut_of(const std::string& cut, const PipelinePlan& pipeline,
                 std::span<const BlockCost> blocks) {
  try {
    Partition made = partition(blocks, {.parts = pipeline.parts(),
                                        .cut = cut,
                                        .micro_batches_held = microbatches_held(pipeline)});
    check(made);
    return made;
  } catch (const Error& error) {
    const auto [what, remedy] = parts_of(error);
    throw Error(error.code(), "config", fmt::format("pipeline.cut is {}: {}", cut, what), remedy);
  }
}

bool needs_measured_blocks(const std::string& cut) {
  const std::string_view measure = trimmed(cut);
  return measure == to_string(PartitionMeasure::time) ||
         measure == to_string(PartitionMeasure::memory);
}

EnginePlan plan_mesh(const DataParallelFacts& facts) {
  EnginePlan plan = plan_replicas(kMeshEngine, facts.placement, facts.parameters);
  plan.mesh = mesh_of(facts.division.mesh, plan.ranks());
  plan.data = facts.data;
  plan.pipeline = pipeline_of(facts.division);
  plan.cut = cut_of(facts.division.pipeline.cut, *plan.pipeline, facts.blocks);
  plan_stages(facts, plan);
  return plan;
}

}  // namespace trireme::plan
