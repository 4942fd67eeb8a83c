// Data parallelism for a user's own training loop. Every replica keeps the same parameters,
// because each step's gradients are averaged over all replicas, weighted by their samples (Li et
// al. 2020, "PyTorch Distributed", section 3).
//
// It takes any torch::nn module and any torch::optim optimizer. Frozen parameters stay as they
// are. Tied parameters are exchanged once. A parameter is skipped if no replica has a gradient for
// it. Parameters of bfloat16 and float16 have float32 masters, unless the caller made the
// optimizer. Batch norm normalises each replica's own samples and keeps running statistics per
// replica; sync_buffers() hands out those of rank 0. sync_batch_norm.h normalises over the samples
// of all replicas. Dropout draws different numbers on every replica. One programme may have
// several engines.
#pragma once
#include <trireme/comm/world.h>
#include <trireme/parallel/data_parallel_options.h>
#include <trireme/parallel/exchange.h>
#include <trireme/parallel/local_sgd.h>
#include <trireme/parallel/model.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/plan/shard_tree.h>
#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>

namespace torch {
namespace jit {
struct Module;
}
namespace optim {
class OptimizerOptions;
}
}  // namespace torch

namespace trireme {

struct UpdatedTensors;

// One thread at a time may use it. A loop of a World calls neither loss.backward() nor an
// optimizer's step() for the parameters itself: after 16 such updates without a step() of the
// DataParallel, that backward() throws Error(invalid_argument), and so does World::leave() after
// 3 if there has been no step() at all. DataParallelOptions::trains_apart allows them.
class DataParallel {
 public:
  // COLLECTIVE. For one replica in each process. Connects the world, plans the engine, and
  // compares model, options, optimizer and plan over all ranks: Error(invalid_argument) names two
  // ranks and the first difference. Then every rank takes rank 0's parameters and buffers. Rank 0
  // draws random numbers as before, and each other rank its own. In an elastic job the loop runs
  // inside run_elastic(), with a Checkpoint of the DataParallel (train/own_checkpoint.h); step()
  // throws Error(invalid_argument) elsewhere.
  DataParallel(World& world, std::shared_ptr<torch::nn::Module> module,
               const OptimizerFactory& optimizer, DataParallelOptions options = {});
  // Does the same with an optimizer that the caller made, e.g. with parameter groups.
  DataParallel(World& world, std::shared_ptr<torch::nn::Module> module,
               std::shared_ptr<torch::optim::Optimizer> optimizer,
               DataParallelOptions options = {});
  // COLLECTIVE over `group`. The replica is one of the group's and may be a thread.
  DataParallel(std::shared_ptr<Group> group, std::shared_ptr<torch::nn::Module> module,
               const OptimizerFactory& optimizer, DataParallelOptions options = {});
  // First tries that cannot work: the compiler's message says what does.
  template <std::derived_from<torch::nn::Module> Module, typename... Arguments>
  DataParallel(World&, Module&, Arguments&&...) {
    static_assert(!sizeof(Module),
                  "DataParallel takes the module in a std::shared_ptr: std::make_shared<Net>(). "
                  "trireme::Distributed takes a module on the stack too.");
  }
  template <typename Script, typename... Arguments>
    requires std::derived_from<std::remove_cvref_t<Script>, torch::jit::Module>
  DataParallel(World&, Script&&, Arguments&&...) {
    static_assert(!sizeof(Script),
                  "DataParallel takes no torch::jit::script::Module. trireme::Distributed<"
                  "torch::optim::SGD> optimizer(world, script, torch::optim::SGDOptions(0.1)) "
                  "does.");
  }
  template <typename Module, std::derived_from<torch::optim::OptimizerOptions> Options,
            typename... Arguments>
  DataParallel(World&, std::shared_ptr<Module>, const Options&, Arguments&&...) {
    static_assert(!sizeof(Options),
                  "DataParallel takes an optimizer, not options of torch::optim: "
                  "trireme::SGD{.lr = 0.1}, or std::make_shared<torch::optim::SGD>(...). "
                  "trireme::Distributed<torch::optim::SGD> takes such options.");
  }
  ~DataParallel();
  DataParallel(DataParallel&&) noexcept;

  // Runs backward of `loss`, a mean over `samples` samples. Several calls before a step accumulate
  // (micro-batches). With 0 samples it computes nothing, unless a SyncBatchNorm lives.
  // `total_samples` is the number of this step's samples over all replicas and micro-batches, if
  // the caller knows it. 16-bit gradients need it, and either all ranks give it or none does.
  void backward(const at::Tensor& loss, int64_t samples, int64_t total_samples = 0);
  // COLLECTIVE. Exchanges the gradients of backward(), updates the parameters, and
  // clears the gradients.
  StepOutcome step();
  // COLLECTIVE. Runs last_backward() and step(). Gradients travel while backward runs if the
  // backend can do so.
  StepOutcome step(const at::Tensor& loss, int64_t samples, int64_t total_samples = 0) {
    last_backward(loss, samples, total_samples);
    return step();
  }
  // Runs backward() for the last micro-batch before step(): its gradients may travel while it
  // runs.
  void last_backward(const at::Tensor& loss, int64_t samples, int64_t total_samples = 0);
  // COLLECTIVE. For optimizers that evaluate the loss several times (LBFGS). `closure` computes
  // the mean loss over this replica's `samples` samples. Every evaluation is exchanged, so all
  // replicas take the same path.
  StepOutcome step(const std::function<at::Tensor()>& closure, int64_t samples);

  // True after an error if several ranks died in one update: parameters and optimizer state may
  // then belong to no step at all.
  bool is_torn() const;
  // With virtual_shards: the shards that this replica computes. Each has the samples of
  // plan::DataPlan::share(batch, shard, virtual_shards). Call end_shard() after a shard's
  // backward() calls, also for a shard without samples; it keeps the shard's gradients apart. Call
  // step() after the last shard.
  plan::ShardRange shards() const;
  void end_shard();

  // Asks all replicas to stop after the next step; its outcome says so on every replica.
  void request_stop();
  // Asks all replicas to leave this generation for the next one (World::regroup)
  // after the next step.
  void request_regroup();
  // COLLECTIVE. Averages parameters that local steps drove apart. Call it before they are
  // evaluated, saved or used.
  void synchronise();
  // COLLECTIVE. Makes every replica's buffers rank 0's. Call it before evaluating or saving.
  void sync_buffers();
  // COLLECTIVE. Runs check_parameters(), then `change` on rank 0, then sync_state(). Use it to
  // load, initialise or rewrite parameters, whether they are shared or not.
  void modify_parameters(const std::function<void()>& change);
  // COLLECTIVE. Makes every replica's parameters and buffers rank 0's, after rank 0 has changed
  // or loaded them. It takes shared parameters as they are, so only rank 0 may have written them.
  void sync_state();
  // COLLECTIVE. Throws Error(invalid_argument) on every rank if a rank finds a change that step()
  // would refuse: another form, or a write to shared parameters outside modify_parameters().
  void check_parameters() const;

  // With OffloadOptions::parameters: the blocks of the module, which let their parameters come
  // into memory and leave it around their forward and backward. Otherwise the same blocks.
  std::vector<Block> paged(const std::vector<Block>& blocks);

  double loss_scale() const;  // 1 without loss_scaling.
  // Checkpoints save the next members: the state that the engine keeps between steps besides
  // parameters and optimizer state. Counters and masters are the same on every rank; own_state()
  // is this rank's own. A resumed run fills the tensors in place.
  Json counters() const;
  void load_counters(const Json& counters);
  // COLLECTIVE. Call it after masters() were filled: all ranks then take rank 0's masters.
  void sync_masters();
  // The float32 masters "master/<parameter>" of parameters that are kept in 16 bits.
  std::vector<NamedTensor> masters() const;
  // This rank's tensors of compression: "error/<parameter>", ...
  std::vector<NamedTensor> own_state();
  // All tensors that the engine keeps, except the optimizer's, with their kinds.
  StateView state_view();

  // The plan with which the engine began; the same on every rank.
  const plan::EnginePlan& plan() const;
  bool shares_parameters() const;  // Whether share_parameters took effect.
  const ModuleState& state() const;
  // The tensors that the optimizer updates, by the module's names: the masters of parameters kept
  // in 16 bits, and all other parameters themselves.
  const std::vector<NamedTensor>& updated_parameters() const;
  torch::optim::Optimizer& optimizer();
  Group& group();

  struct Impl;

 private:
  struct Seat;  // It has the engine of this generation.
  static std::unique_ptr<Seat> join(World& world, std::shared_ptr<torch::nn::Module> module,
                                    const UpdatedTensors& updated, DataParallelOptions options);
  Impl& impl() const;

  std::unique_ptr<Seat> seat_;
};

// Whether it is the optimizer of a DataParallel that was made with a World. Any thread.
bool is_of_a_replica(const torch::optim::Optimizer& optimizer);

}  // namespace trireme
