// Plans the engine of a mesh: replicas of the model x stages x ranks that divide layers. The
// functions are pure.
#pragma once
#include <trireme/plan/data_parallel_plan.h>
#include <trireme/plan/pipeline_plan.h>

namespace trireme::plan {

// The schedule of the stages. Throws Error(invalid_argument) naming the key if there is no such
// schedule or the numbers do not fit it.
PipelinePlan pipeline_of(const DivisionOptions& division);

// Throws Error(invalid_argument) if the mesh is not that of the ranks.
EnginePlan plan_mesh(const DataParallelFacts& facts);

}  // namespace trireme::plan
