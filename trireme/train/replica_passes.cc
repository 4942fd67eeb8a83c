#include <ATen/core/Tensor.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/tensor/autocast.h>
#include <trireme/train/evaluate.h>
#include <trireme/train/replica_passes.h>

namespace trireme {
namespace {

// Copies the part into its own memory, because operators may add in another order if data is
// aligned differently.
Batch part_of(const Batch& batch, int64_t from, int64_t count) {
  return {batch.data.narrow(0, from, count).clone(),
          batch.target.narrow(0, from, count).clone(),
          {batch.indices.begin() + from, batch.indices.begin() + from + count},
          batch.global_size,
          batch.position,
          batch.next};
}

}  // namespace

std::vector<at::Tensor> copies_of(const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const auto& [name, tensor] : tensors) copies.push_back(tensor.clone());
  return copies;
}

ReplicaPasses::ReplicaPasses(const TrainerOptions& options, const Job& job, const Model& model,
                             ReplicaRandom& random, std::function<void(Phase)> phase)
    : options_(options), job_(job), model_(model), random_(random), phase_(std::move(phase)) {}

void ReplicaPasses::bind(DataParallel& replica, std::shared_ptr<Group> norm_group) {
  replica_ = &replica;
  norm_group_ = std::move(norm_group);
}

void ReplicaPasses::unbind() {
  replica_ = nullptr;
  norm_group_.reset();
}

void ReplicaPasses::compute(const Batch& batch, int64_t step, int passes) {
  if (options_.virtual_shards == 0) return compute_whole(batch, passes);
  const std::vector<at::Tensor> before = std::exchange(buffers_judged_, true)
                                             ? std::vector<at::Tensor>()
                                             : copies_of(replica_->state().buffers);
  const plan::ShardRange own = replica_->shards();
  int64_t from = 0;
  for (int shard = own.first; shard < own.last; ++shard) {
    const auto [first, last] =
        plan::DataPlan::share(batch.global_size, shard, options_.virtual_shards);
    random_.reseed(
        mix64(options_.seed, static_cast<uint64_t>(step), static_cast<uint64_t>(shard)));
    compute_whole(part_of(batch, from, last - first), passes);
    replica_->end_shard();
    from += last - first;
  }
  refuse_moved_buffers(before);
}

// Refuses buffers that change, because running statistics would depend on which replica saw
// which shard.
void ReplicaPasses::refuse_moved_buffers(const std::vector<at::Tensor>& before) const {
  for (size_t i = 0; i < before.size(); ++i)
    if (const auto& [name, tensor] = replica_->state().buffers[i]; !tensor.equal(before[i]))
      throw Error(
          ErrorCode::invalid_argument, "train",
          fmt::format("reproducible.virtual_shards is {}, but training changes the buffer '{}': "
                      "its values would depend on "
                      "which replica computes which shard",
                      options_.virtual_shards, name),
          "a model without running statistics (batch norm), or reproducible.virtual_shards=0");
}

void ReplicaPasses::compute_whole(const Batch& batch, int passes) {
  for (int part = 0; part < passes; ++part) {
    const auto [from, to] = plan::DataPlan::share(batch.size(), part, passes);
    if (from == to) {
      compute_nothing(batch);
      continue;
    }
    phase_(Phase::forward);
    const bool whole = to - from == batch.size();
    const at::Tensor data = whole ? batch.data : batch.data.narrow(0, from, to - from);
    const at::Tensor target = whole ? batch.target : batch.target.narrow(0, from, to - from);
    at::Tensor loss;
    {
      const Autocast mixed(options_.autocast);
      const auto together = norms_together();
      loss = loss_of(job_, model_.forward(data), target);
    }
    phase_(Phase::backward);
    if (part + 1 == passes)
      replica_->last_backward(loss, to - from, batch.global_size);
    else
      replica_->backward(loss, to - from, batch.global_size);
  }
}

std::optional<SyncBatchNorm> ReplicaPasses::norms_together() const {
  if (!norm_group_) return std::nullopt;
  return std::optional<SyncBatchNorm>(std::in_place, norm_group_);
}

// Computes nothing on a replica without samples, unless the batch norms of other replicas wait
// for it.
void ReplicaPasses::compute_nothing(const Batch& batch) {
  const auto together = norms_together();
  if (!together) return replica_->backward({}, 0, batch.global_size);
  const Autocast mixed(options_.autocast);
  replica_->backward(model_.forward(batch.data.narrow(0, 0, 0)).sum(), 0, batch.global_size);
}

}  // namespace trireme
