#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <trireme/comm/group.h>
#include <trireme/parallel/pipeline/part_times.h>

namespace trireme {
namespace {

constexpr int64_t kTasks = 4;
using plan::PipelineTask;

}  // namespace

PartTimes::PartTimes(int parts) : sums_(at::zeros({parts, kTasks, 2}, at::kDouble)) {}

void PartTimes::add(const plan::PipelineStep& step, double seconds) {
  auto sums = sums_.accessor<double, 3>();
  auto of_task = sums[step.part][static_cast<int64_t>(step.task)];
  of_task[0] += seconds;
  of_task[1] += 1;
}

void PartTimes::clear() {
  sums_.zero_();
  step_seconds_ = 0;
}

PartTimes::Bubble PartTimes::bubble(const plan::PipelinePlan& plan, Group& group) const {
  at::Tensor all = at::cat({sums_.flatten(), at::full({1}, step_seconds_, at::kDouble)});
  group.all_reduce(all);
  const double of_steps = all[all.numel() - 1].item<double>();
  if (of_steps <= 0) return {};
  const at::Tensor sums = all.narrow(0, 0, sums_.numel()).view(sums_.sizes());
  const auto mean = [&](int part, PipelineTask task) {
    const at::Tensor of_task = sums[part][static_cast<int64_t>(task)];
    const double count = of_task[1].item<double>();
    return count > 0 ? of_task[0].item<double>() / count : 0;
  };
  plan::PipelineCosts costs{.forward = {}, .input_gradient = {}, .weight_gradient = {}};
  for (int part = 0; part < plan.parts(); ++part) {
    // A plan has whole backwards or halves. The halves of a whole one only count together.
    const double both = mean(part, PipelineTask::backward);
    costs.forward.push_back(mean(part, PipelineTask::forward));
    costs.input_gradient.push_back(both / 2 + mean(part, PipelineTask::input_gradient));
    costs.weight_gradient.push_back(both / 2 + mean(part, PipelineTask::weight_gradient));
  }
  const double busy = sums.select(2, 0).sum().item<double>();
  return {1 - busy / of_steps, plan::simulate(plan, costs).bubble};
}

}  // namespace trireme
