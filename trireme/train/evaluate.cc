#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/module.h>

#include <trireme/plan/data_plan.h>
#include <trireme/train/evaluate.h>
#include <numeric>

namespace trireme {

at::Tensor loss_of(const Job& job, const at::Tensor& output, const at::Tensor& target) {
  if (job.loss) return job.loss(output, target);
  const bool half = output.scalar_type() == at::kBFloat16 || output.scalar_type() == at::kHalf;
  return at::cross_entropy_loss(half ? output.to(at::kFloat) : output, target.reshape({-1}));
}

int64_t correct_of(const Job& job, const at::Tensor& output, const at::Tensor& target) {
  if (job.correct) return job.correct(output, target);
  if (output.dim() != 2) return 0;  // It is not a classifier.
  return output.argmax(1).eq(target.reshape({-1})).sum().item<int64_t>();
}

Evaluation evaluate(Engine& engine, const Model& model, const Job& job, const Source& source,
                    int64_t batch, at::ScalarType dtype, Group& group) {
  const at::NoGradGuard no_grad;
  model.module->eval();
  const DataShare share = engine.data_share();
  const auto [first, last] = plan::DataPlan::share(source.size(), share.index, share.count);
  double loss = 0, correct = 0, targets = 0, samples = 0;
  for (int64_t start = first; start < last; start += batch) {
    std::vector<int64_t> indices(std::min(batch, last - start));
    std::iota(indices.begin(), indices.end(), start);
    Example example = source.get_batch(indices);
    if (example.data.is_floating_point()) example.data = example.data.to(dtype);
    const at::Tensor output = engine.evaluate(example.data);
    if (!output.defined()) continue;
    loss +=
        loss_of(job, output, example.target).item<double>() * static_cast<double>(indices.size());
    correct += static_cast<double>(correct_of(job, output, example.target));
    targets += static_cast<double>(example.target.numel());
    samples += static_cast<double>(indices.size());
  }
  model.module->train();
  at::Tensor sums = at::tensor({loss, correct, targets, samples}, at::kDouble);
  group.all_reduce(sums);
  const double* total = sums.const_data_ptr<double>();
  Evaluation evaluation;
  evaluation.samples = static_cast<int64_t>(total[3]);
  if (total[3] > 0) evaluation.loss = total[0] / total[3];
  if (total[2] > 0) evaluation.accuracy = total[1] / total[2];
  return evaluation;
}

}  // namespace trireme
