#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/plan/mesh_plan.h>
#include <algorithm>

namespace trireme::plan {
namespace {

// The bubble is then at most a fifth of the time.
constexpr int kMicrobatchesOfAStage = 4;

}  // namespace

PipelinePlan pipeline_of(const DivisionOptions& division) {
  const int stages = division.mesh.pipeline;
  const PipelineOptions& options = division.pipeline;
  const int usual = stages == 1 ? 1 : kMicrobatchesOfAStage * stages;
  try {
    PipelinePlan plan =
        plan_pipeline({.schedule = options.schedule,
                       .stages = stages,
                       .microbatches = options.microbatches > 0 ? options.microbatches : usual,
                       .chunks = options.chunks});
    check(plan);
    return plan;
  } catch (const Error& error) {
    const ErrorParts parts = parts_of(error);
    throw Error(error.code(), "config",
                fmt::format("pipeline.schedule is {}: {}", options.schedule, parts.what),
                parts.remedy);
  }
}

EnginePlan plan_mesh(const DataParallelFacts& facts) {
  EnginePlan plan = plan_replicas("mesh", facts.placement, facts.parameters);
  plan.mesh = mesh_of(facts.division.mesh, plan.ranks());
  return plan;
}

}  // namespace trireme::plan
