#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/module.h>

#include <trireme/plan/data_plan.h>
#include <trireme/train/evaluate.h>
#include <numeric>

namespace trireme {
namespace {

Batch load(const Source& source, int64_t first, int64_t count, at::ScalarType dtype) {
  Batch batch;
  batch.indices.resize(static_cast<size_t>(count));
  std::iota(batch.indices.begin(), batch.indices.end(), first);
  Example rows = source.get_batch(batch.indices);
  const auto converted = [&](const at::Tensor& tensor) {
    return tensor.is_floating_point() ? tensor.to(dtype) : tensor;
  };
  batch.data = converted(rows.data);
  batch.target = std::move(rows.target);
  for (const auto& [name, tensor] : rows.more) batch.more.emplace(name, converted(tensor));
  batch.global_size = count;
  return batch;
}

}  // namespace

at::Tensor loss_of(const Job& job, const at::Tensor& output, const Batch& batch) {
  if (job.loss) return job.loss(output, batch);
  const bool half = output.scalar_type() == at::kBFloat16 || output.scalar_type() == at::kHalf;
  return at::cross_entropy_loss(half ? output.to(at::kFloat) : output, batch.target.reshape({-1}));
}

int64_t correct_of(const Job& job, const at::Tensor& output, const Batch& batch) {
  if (job.correct) return job.correct(output, batch);
  if (output.dim() != 2) return 0;  // It is not a classifier.
  return output.argmax(1).eq(batch.target.reshape({-1})).sum().item<int64_t>();
}

Evaluation evaluate(Engine& engine, const Model& model, const Job& job, const Source& source,
                    int64_t batch, at::ScalarType dtype, Group& group) {
  const at::NoGradGuard no_grad;
  model.module->eval();
  const DataShare share = engine.data_share();
  const auto [first, last] = plan::DataPlan::share(source.size(), share.index, share.count);
  double loss = 0, correct = 0, targets = 0, samples = 0;
  // The first share is as large as any. Ranks that fetch parameters from each other need as many
  // calls everywhere.
  const int64_t most = plan::DataPlan::share(source.size(), 0, share.count).second;
  for (int64_t done = 0; done < most; done += batch) {
    const int64_t start = first + done;
    if (start >= last) {
      engine.evaluate_without_samples();
      continue;
    }
    const Batch part = load(source, start, std::min(batch, last - start), dtype);
    const at::Tensor output = engine.evaluate(part);
    if (!output.defined()) continue;
    loss += loss_of(job, output, part).item<double>() * static_cast<double>(part.size());
    correct += static_cast<double>(correct_of(job, output, part));
    targets += static_cast<double>(part.target.numel());
    samples += static_cast<double>(part.size());
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
