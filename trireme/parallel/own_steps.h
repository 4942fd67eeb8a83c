// The engine of a training loop as it stands, which calls loss.backward() and optimizer.step()
// itself (distributed.h wraps it). Each backward() that accumulates gradients in the module's
// parameters ends with the mean over all ranks in every .grad: whatever looks at gradients
// afterwards, such as clipping, sees what one process sees. Between hosts gradients travel while
// backward runs (Li et al. 2020, "PyTorch Distributed", section 3.2); the ranks of one host add
// them up where they lie (shared/host_means.h). The update is the fused one of the data-parallel
// engine, on each rank, if the optimizer has one.
#pragma once
#include <trireme/comm/world.h>
#include <trireme/parallel/data_parallel_options.h>
#include <trireme/parallel/optimizer.h>
#include <functional>
#include <memory>

namespace trireme {

struct OwnStepsOptions {
  plan::BucketOptions buckets;
  plan::CompressionOptions compression;
  // The ranks compare a digest of their parameters in the first two steps, in each such number of
  // steps, and at World::leave(). 0: never.
  int64_t check_every = 64;
  // The loop may call join(), although it has several engines, closures, a LoopRecord or a
  // Checkpoint. Gradients then travel at the end of backward, and before each operation the ranks
  // tell each other which one it is. The same on all engines. Not in an elastic job.
  bool joins = false;
  // A gradient that is NaN or infinite is an error. False: the loop looks at its gradients itself,
  // such as one with a scaled loss.
  bool stop_on_nan = true;
  // The loop gives each rank its samples by itself, such as by a sampler that knows the rank.
  // Without it there is a warning if neither make_data_loader() nor World::share() did, and an
  // error if all ranks have computed the same gradients from them.
  bool own_samples = false;
  // The loop trains tensors that no engine has, on each rank its own. Without it that is an error.
  bool trains_apart = false;
};

class LoneSteps;

// One thread at a time may use it.
class OwnSteps {
 public:
  // COLLECTIVE, unless the world is one process: then it changes nothing, now and later, and only
  // finds mistakes (lone_steps.h). Compares model, optimizer and options over all ranks, and gives
  // every rank rank 0's parameters and buffers. From now on the ranks other than 0 draw other
  // random numbers than rank 0 from the default generator, by its seed. `optimizer` outlives the
  // object, and so does `module`.
  OwnSteps(World& world, std::shared_ptr<torch::nn::Module> module,
           torch::optim::Optimizer& optimizer, const OwnStepsOptions& options = {});
  // Backward calls no longer communicate.
  ~OwnSteps();
  OwnSteps(const OwnSteps&) = delete;

  using Closure = std::function<at::Tensor()>;
  // Updates with the gradients that the last backward() left. `own` is the optimizer's own step.
  // With a closure (LBFGS) each of its losses becomes the mean over all ranks. Throws
  // Error(invalid_argument) naming rank and step if no backward() has left the ranks' mean.
  at::Tensor step(const Closure& closure, const std::function<at::Tensor(Closure)>& own);

  // While the result lives, backward() adds to this rank's gradients alone. The first backward()
  // after it reduces them all.
  [[nodiscard]] std::shared_ptr<void> no_sync();
  // For ranks with unequal numbers of batches, once this rank has had its last one. Takes part in
  // what the others do without samples, until all ranks are here. Then every rank takes
  // parameters, buffers, optimizer state and learning rates of the rank that came last. (A
  // schedule that is stepped with each batch has its own counter: give it one for each epoch.)
  // One call is for all engines of the loop. Throws Error(unsupported) if these are several, or
  // the loop has a LoopRecord or a Checkpoint, without OwnStepsOptions::joins.
  void join();
  // COLLECTIVE. Gives every rank rank 0's parameters, buffers and optimizer state, after rank 0
  // has changed or loaded them.
  void sync();

 private:
  struct Impl;
  void bind();  // COLLECTIVE. In each generation of an elastic job.
  const std::shared_ptr<OwnLoop> loop_;
  const std::shared_ptr<torch::nn::Module> module_;
  torch::optim::Optimizer& optimizer_;
  const OwnStepsOptions options_;
  const int number_;  // Among the engines of this process.
  std::shared_ptr<const std::function<void()>> rebind_;
  std::shared_ptr<const std::function<void(int)>> take_state_;
  std::shared_ptr<const LoopTurns::Part> part_;
  const int64_t part_number_;
  std::shared_ptr<Impl> impl_;       // Null in a world of one process,
  std::shared_ptr<LoneSteps> lone_;  // and this one in a larger world.
};

}  // namespace trireme
