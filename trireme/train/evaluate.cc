#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/module.h>

#include <trireme/parallel/model_device.h>
#include <trireme/plan/data_plan.h>
#include <trireme/train/evaluate.h>
#include <algorithm>

namespace trireme {
namespace {

// Any thread reads as those of a loader do: without gradients, and in the types that the stages
// give.
Batch load_for_evaluation(const Source& source, const Draws& asked, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  Batch batch;
  std::vector<size_t> left_out;
  Example rows = source.get_kept(asked, left_out);
  // An evaluation knows its samples by their rows alone.
  batch.indices.assign(asked.indices.begin(), asked.indices.end() - std::ssize(left_out));
  const auto converted = [&](const at::Tensor& tensor) {
    return tensor.is_floating_point() ? tensor.to(dtype) : tensor;
  };
  batch.data = converted(rows.data);
  batch.target = std::move(rows.target);
  for (const auto& [name, tensor] : rows.more) batch.more.emplace(name, converted(tensor));
  batch.global_size = batch.global_used = batch.size();
  if (const auto size = source.size_of(asked.at(0)); size && size->targets)
    batch.global_targets = counted_targets(batch);
  return batch;
}

// The source is the caller's, and outlives the batches.
data::OrderedBatches batches_of(const Source& source, int64_t first, int64_t last,
                                const EvaluationReads& reads, at::Device device) {
  return {std::shared_ptr<const Source>(std::shared_ptr<void>(), &source),
          {first, last, reads.batch},
          reads.ahead,
          [&source, dtype = reads.dtype, device](const Draws& asked) {
            const Batch batch = load_for_evaluation(source, asked, dtype);
            return device.is_cpu() ? batch : batch.on(device);
          }};
}

// Loss, correct targets, targets, samples, and the sums of the job's metrics.
struct EvaluationSums {
  explicit EvaluationSums(const Job& the_job) : job(the_job), metrics(the_job.metrics) {}

  const Job& job;
  MetricSums metrics;
  double loss = 0, correct = 0, targets = 0, samples = 0;
  double weight = 0;  // The samples, or the targets that count.

  void add(const at::Tensor& output, const Batch& part) {
    const bool counts_targets = part.global_targets >= 0;
    const auto each =
        static_cast<double>(counts_targets && !job.loss ? part.global_targets : part.size());
    loss += loss_of(job, output, part).item<double>() * each;
    weight += each;
    correct += static_cast<double>(correct_of(job, output, part));
    targets += static_cast<double>(counts_targets ? part.global_targets : part.target.numel());
    samples += static_cast<double>(part.size());
    metrics.add(output, part);
  }
  // COLLECTIVE.
  void add_up(Group& group) {
    const at::Tensor all = at::cat(
        {at::tensor({loss, correct, targets, samples, weight}, at::kDouble), metrics.sums});
    group.all_reduce(all);
    const double* const total = all.const_data_ptr<double>();
    loss = total[0], correct = total[1], targets = total[2], samples = total[3];
    weight = total[4];
    metrics.sums = all.narrow(0, 5, all.size(0) - 5);
  }
  Evaluation means() const {
    Evaluation evaluation;
    evaluation.samples = static_cast<int64_t>(samples);
    if (weight > 0) evaluation.loss = loss / weight;
    if (targets > 0) evaluation.accuracy = correct / targets;
    evaluation.metrics = metrics.values();
    return evaluation;
  }
};

}  // namespace

int64_t counted_targets(const Batch& batch) {
  return batch.target.ne(kNoTarget).sum().item<int64_t>();
}

int64_t evaluation_batch(int64_t batch) {
  return std::max<int64_t>(1, std::min<int64_t>(batch, 1024));
}

at::Tensor loss_of(const Job& job, const at::Tensor& output, const Batch& batch) {
  if (job.loss) return job.loss(output, batch);
  const bool half = output.scalar_type() == at::kBFloat16 || output.scalar_type() == at::kHalf;
  const at::Tensor logits = half ? output.to(at::kFloat) : output;
  // Mixed samples have a probability for each class.
  if (batch.target.is_floating_point() && batch.target.sizes() == output.sizes())
    return at::cross_entropy_loss(logits, batch.target.to(logits.scalar_type()));
  const at::Tensor targets = batch.target.reshape({-1});
  if (batch.global_targets < 0) return at::cross_entropy_loss(logits, targets);
  // Engines weigh the mean of a share by its samples. So the sum over all shares becomes the sum
  // over the targets that count, divided by their number.
  const at::Tensor sum =
      at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, kNoTarget);
  return sum * (static_cast<double>(batch.global_size) /
                (static_cast<double>(std::max<int64_t>(1, batch.global_targets)) *
                 static_cast<double>(batch.size())));
}

int64_t correct_of(const Job& job, const at::Tensor& output, const Batch& batch) {
  if (job.correct) return job.correct(output, batch);
  // It is not a classifier.
  if (output.dim() != 2 || batch.target.is_floating_point()) return 0;
  return output.argmax(1).eq(batch.target.reshape({-1})).sum().item<int64_t>();
}

Evaluation evaluate(Engine& engine, const Model& model, const Job& job, const Source& source,
                    const EvaluationReads& reads, Group& group) {
  const at::NoGradGuard no_grad;
  model.module->eval();
  const at::Device device = device_of(state_of(*model.module).parameters);
  const DataShare share = engine.data_share();
  const auto [first, last] = plan::DataPlan::share(source.size(), share.index, share.count);
  data::OrderedBatches batches = batches_of(source, first, last, reads, device);
  EvaluationSums sums(job);
  // The first share is as large as any. Ranks that fetch parameters from each other need as many
  // calls everywhere.
  const int64_t most = plan::DataPlan::share(source.size(), 0, share.count).second;
  for (int64_t done = 0; done < most; done += reads.batch) {
    Batch part;
    if (batches.has_next()) part = batches.next();
    if (part.size() == 0) {
      engine.evaluate_without_samples();
      continue;
    }
    const at::Tensor output = engine.evaluate(part);
    if (output.defined()) sums.add(output, part);
  }
  model.module->train();
  sums.add_up(group);
  return sums.means();
}

Evaluation evaluate_alone(const Model& model, const Job& job, const Source& source,
                          const EvaluationReads& reads) {
  const at::NoGradGuard no_grad;
  model.module->eval();
  EvaluationSums sums(job);
  const at::Device device = device_of(state_of(*model.module).parameters);
  for (data::OrderedBatches batches = batches_of(source, 0, source.size(), reads, device);
       batches.has_next();) {
    const Batch part = batches.next();
    if (part.size() > 0) sums.add(output_of(model, part), part);
  }
  model.module->train();
  return sums.means();
}

}  // namespace trireme
