#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/train/evaluate.h>
#include <trireme/train/left_out.h>
#include <cmath>

namespace trireme {

void count_left_out(Batch& batch, int shares, bool& wants_stop, Group& group) {
  const bool counts_targets = batch.global_targets >= 0;
  const at::Tensor sums =
      at::tensor({static_cast<double>(batch.size()), wants_stop ? 1.0 : 0.0,
                  counts_targets ? static_cast<double>(counted_targets(batch)) : 0.0},
                 at::kDouble);
  group.all_reduce(sums);
  const auto of_shares = [&](double sum) { return std::llround(sum * shares / group.size()); };
  batch.global_size = of_shares(sums.const_data_ptr<double>()[0]);
  if (counts_targets) batch.global_targets = of_shares(sums.const_data_ptr<double>()[2]);
  wants_stop = batch.global_size == 0 && sums.const_data_ptr<double>()[1] > 0;
}

void refuse_left_out(Engine& engine) {
  if (!engine.own_pace()) return;
  throw Error(ErrorCode::unsupported, "train",
              "the data may leave samples out (a filter, or data.on_bad_record=skip), and a "
              "strategy whose workers take steps at their own pace needs whole batches",
              "data without them, or strategy.name=multi_worker");
}

void EmptyBatches::take(const Batch& batch, const plan::DataPlan& plan) {
  in_sequence_ = batch.global_size == 0 ? in_sequence_ + 1 : 0;
  if (in_sequence_ < plan.batches_per_epoch()) return;
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("all samples of the last {} batches were left out: a whole epoch has no "
                          "sample to train on",
                          in_sequence_),
              "a filter that keeps some samples, or files whose records can be read");
}

}  // namespace trireme
