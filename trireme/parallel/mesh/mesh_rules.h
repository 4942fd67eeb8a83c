// The rules between the axes of a mesh: what cannot be divided in two ways at once.
#pragma once
#include <trireme/parallel/optimizer.h>
#include <trireme/plan/pipeline_plan.h>
#include <string>

namespace trireme {

// Throws Error(unsupported) naming the keys if replicas of these stages cannot divide state of
// this level. `tied` is a parameter that several stages have, and `summed` one whose gradients the
// tensor axis adds up; empty if there is none.
void check_shards(int level, const plan::PipelinePlan& pipeline, const std::string& tied,
                  const std::string& summed);
// Throws Error(unsupported) if the optimizer needs the norms of layers, which the tensor axis
// divides.
void check_divided_update(const torch::optim::Optimizer& optimizer);

}  // namespace trireme
