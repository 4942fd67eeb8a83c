#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/module.h>

#include <trireme/plan/data_plan.h>
#include <trireme/train/evaluate.h>
#include <algorithm>
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

// Loss, correct targets, targets and samples.
struct EvaluationSums {
  double loss = 0, correct = 0, targets = 0, samples = 0;

  void add(const Job& job, const at::Tensor& output, const Batch& part) {
    loss += loss_of(job, output, part).item<double>() * static_cast<double>(part.size());
    correct += static_cast<double>(correct_of(job, output, part));
    targets += static_cast<double>(part.target.numel());
    samples += static_cast<double>(part.size());
  }
  Evaluation means() const {
    Evaluation evaluation;
    evaluation.samples = static_cast<int64_t>(samples);
    if (samples > 0) evaluation.loss = loss / samples;
    if (targets > 0) evaluation.accuracy = correct / targets;
    return evaluation;
  }
};

}  // namespace

int64_t evaluation_batch(int64_t batch) {
  return std::max<int64_t>(1, std::min<int64_t>(batch, 1024));
}

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
  EvaluationSums own;
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
    if (output.defined()) own.add(job, output, part);
  }
  model.module->train();
  const at::Tensor sums =
      at::tensor({own.loss, own.correct, own.targets, own.samples}, at::kDouble);
  group.all_reduce(sums);
  const double* total = sums.const_data_ptr<double>();
  return EvaluationSums{total[0], total[1], total[2], total[3]}.means();
}

Evaluation evaluate_alone(const Model& model, const Job& job, const Source& source, int64_t batch,
                          at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  model.module->eval();
  EvaluationSums sums;
  for (int64_t done = 0; done < source.size(); done += batch) {
    const Batch part = load(source, done, std::min(batch, source.size() - done), dtype);
    sums.add(job, output_of(model, part), part);
  }
  model.module->train();
  return sums.means();
}

}  // namespace trireme
