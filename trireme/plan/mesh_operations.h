// Plans what the ranks of a mesh keep and exchange in a step: each stage's parameters, the rows
// that its replicas own, and the operations. Pure.
#pragma once
#include <trireme/plan/data_parallel_plan.h>

namespace trireme::plan {

// Completes a plan that has mesh, placement, parameters, pipeline and cut: its stages, shards and
// operations. These are of a step with one pass over the micro-batches; with train.accumulate, the
// operations of a backward take place so many times. The sums of layers' norms (Lars, Lamb) are
// not among them.
void plan_stages(const DataParallelFacts& facts, EnginePlan& plan);

}  // namespace trireme::plan
