// Data parallelism for a user's own training loop: every replica keeps the same parameters, because
// each step's gradients are averaged over all replicas, weighted by their samples (Li et al. 2020,
// "PyTorch Distributed", section 3).
//
// Any torch::nn module, any torch::optim optimizer. Frozen parameters stay as they are, tied ones
// are exchanged once, parameters without a gradient on every replica are skipped. Parameters of
// bfloat16 and float16 have float32 masters, unless the caller made the optimizer. Batch norm
// normalises each replica's own samples and keeps running statistics per replica; rank 0's are the
// ones that sync_buffers() hands out (sync_batch_norm.h: over the samples of all replicas). Dropout
// draws other numbers on every replica. Several engines in one programme are fine.
#pragma once
#include <trireme/comm/world.h>
#include <trireme/parallel/exchange.h>
#include <trireme/parallel/grad_scaler.h>
#include <trireme/parallel/local_sgd.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/plan/shard_tree.h>
#include <functional>
#include <memory>
#include <optional>

namespace trireme {

struct DataParallelOptions {
  double clip_norm = 0;        // Global L2 norm; 0: never.
  bool gradient_norm = false;  // Report the norm in every StepOutcome.
  // One copy of parameters and optimizer state for all replicas of a host
  // (shared/shared_exchange.h), where the optimizer is one of SGD, Adam, AdamW, RMSprop, Adagrad,
  // Lars and Lamb and the carrier shares memory; else this does nothing. Code that writes
  // parameters then does so inside modify_parameters().
  bool share_parameters = false;
  // Where parameters are shared: an update in which a rank dies is finished by the others of its
  // host (shared/update_guard.h), and costs a copy of what it writes. Optimizers whose step depends
  // on whole layers (Lars, Lamb) then keep a copy for each replica.
  shared::UpdateGuardOptions guard;
  plan::BucketOptions buckets;
  CompressionOptions compression;
  LocalSgdOptions local;  // Replicas take several steps apart.
  // Above 0: the global batch is cut into so many pieces, each computed apart, and any number of
  // replicas ends with the same bits (reproducible_exchange.h). Each replica computes those of
  // shards(). Not with compression, local steps or a closure; parameters are not shared.
  int virtual_shards = 0;
  std::optional<GradScalerOptions> loss_scaling;  // For float16: losses are scaled up, gradients
                                                  // back; a step that overflows is skipped.
  // ExchangeOptions::accept. Not asked while local steps keep replicas apart.
  std::function<bool(double loss, double gradient_norm)> accept;
};

// One thread at a time.
class DataParallel {
 public:
  // COLLECTIVE. One replica a process. Connects the world, compares the model's names, shapes and
  // options over all ranks (Error(invalid_argument) names two ranks and what differs), then takes
  // rank 0's parameters and buffers.
  DataParallel(World& world, std::shared_ptr<torch::nn::Module> module,
               const OptimizerFactory& optimizer, DataParallelOptions options = {});
  // The same with an optimizer made by the caller, e.g. with parameter groups.
  DataParallel(World& world, std::shared_ptr<torch::nn::Module> module,
               std::shared_ptr<torch::optim::Optimizer> optimizer,
               DataParallelOptions options = {});
  // COLLECTIVE over `group`: one of its replicas, which may be a thread. Compares nothing.
  DataParallel(std::shared_ptr<Group> group, std::shared_ptr<torch::nn::Module> module,
               const OptimizerFactory& optimizer, DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(DataParallel&&) noexcept;

  // Backward of `loss`, a mean over `samples` samples; several calls before a step accumulate
  // (micro-batches). With 0 samples nothing is computed, unless a SyncBatchNorm lives.
  // `total_samples`: of this step over all replicas and micro-batches, if the caller knows it;
  // needed for 16-bit gradients, and the same choice on every rank.
  void backward(const at::Tensor& loss, int64_t samples, int64_t total_samples = 0);
  // COLLECTIVE. Exchanges what backward() left, updates the parameters, and clears the gradients.
  StepOutcome step();
  // COLLECTIVE. Both in one.
  // Gradients travel while backward runs, where the carrier can.
  StepOutcome step(const at::Tensor& loss, int64_t samples, int64_t total_samples = 0) {
    last_backward(loss, samples, total_samples);
    return step();
  }
  // backward() of the last micro-batch before step(): its gradients may travel while it runs.
  void last_backward(const at::Tensor& loss, int64_t samples, int64_t total_samples = 0);
  // COLLECTIVE. For optimizers that evaluate the loss several times (LBFGS): `closure` computes the
  // mean loss over this replica's `samples` samples; every evaluation is exchanged, so all replicas
  // take the same path.
  StepOutcome step(const std::function<at::Tensor()>& closure, int64_t samples);

  // After an error: parameters and optimizer state may be of no step at all, since several ranks
  // died in one update.
  bool is_torn() const;
  // With virtual_shards: those that this replica computes, of plan::DataPlan::share(batch, shard,
  // virtual_shards) each. After a shard's backward() calls, or without any for one that has no
  // samples, end_shard() keeps its gradients apart; after the last comes step().
  plan::ShardRange shards() const;
  void end_shard();

  // Asks that all replicas stop after the next step: its outcome says so everywhere.
  void request_stop();
  // Likewise, that all leave this generation for the next (World::regroup).
  void request_regroup();
  // COLLECTIVE. Parameters that local steps drove apart are averaged: before they are evaluated,
  // saved, or used.
  void synchronise();
  // COLLECTIVE. Every replica's buffers become rank 0's (before evaluating or saving).
  void sync_buffers();
  // COLLECTIVE. Runs `change` on rank 0, then sync_state(): to load, initialise or rewrite
  // parameters, whether they are shared or not.
  void modify_parameters(const std::function<void()>& change);
  // COLLECTIVE. Every replica's parameters and buffers become rank 0's (after rank 0 has changed or
  // loaded them).
  void sync_state();

  double loss_scale() const;  // 1 without loss_scaling.
  // What the engine keeps between steps beside parameters and optimizer state, for checkpoints.
  // Counters and masters are the same on every rank, the rest is this rank's own; tensors are
  // filled in place when a run goes on.
  Json counters() const;
  void load_counters(const Json& counters);
  // COLLECTIVE. After masters() were filled: they are taken as rank 0 has them.
  void sync_masters();
  std::vector<NamedTensor> masters()
      const;  // "master/<parameter>", float32, of parameters that are kept in 16 bits.
  std::vector<NamedTensor> own_state();  // "error/<parameter>", ...: of compression.

  bool shares_parameters() const;  // Whether share_parameters took effect.
  const ModuleState& state() const;
  // What the optimizer updates, by the module's names: the masters of parameters kept in 16 bits,
  // the module's own of all others.
  const std::vector<NamedTensor>& updated_parameters() const;
  torch::optim::Optimizer& optimizer();
  Group& group();

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
