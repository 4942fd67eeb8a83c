// How long the parts of a pipeline compute.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/plan/pipeline_plan.h>
#include <trireme/plan/pipeline_times.h>
#include <cstdint>

namespace trireme {

class Group;

// Sums over the steps of one rank, in seconds. Used by one thread.
class PartTimes {
 public:
  explicit PartTimes(int parts);
  void add(const plan::PipelineStep& step, double seconds);
  // One step of training has taken this long, with all waiting.
  void add_step(double seconds) { step_seconds_ += seconds; }
  // Forgets everything: the first step allocates memory, and is not like the others.
  void clear();

  struct Bubble {
    double measured = 0;   // The fraction of the steps in which the ranks did not compute.
    double predicted = 0;  // By the plan, with the mean costs that were measured.
  };
  // COLLECTIVE. The same on all ranks. Both are 0 if nothing was added.
  Bubble bubble(const plan::PipelinePlan& plan, Group& group) const;

 private:
  // By part and task: seconds, and the number of steps of the plan.
  at::Tensor sums_;  // float64 [parts, tasks, 2]
  double step_seconds_ = 0;
};

}  // namespace trireme
