// Checkpoints of a training loop of one's own, and its elasticity.
//
//   trireme::Checkpoint checkpoint(world, model, optimizer, {.dir = "runs/mine", .every_steps =
//   100}); checkpoint.include(schedule); checkpoint.include(*loader); trireme::run_elastic(world,
//   checkpoint, [&] {
//     while (loader->epoch() < 10)
//       for (auto& batch : *loader) {
//         ...                        // forward, backward, step
//         checkpoint.commit();
//       }
//   });
//
// A checkpoint has the model, the optimizer's state, the learning rates, the schedules' counters,
// the loaders' positions, numbers of the programme, and each rank's random numbers, in the format
// of `trireme train` (docs/checkpoints.md). Python's safetensors reads it under PyTorch's names.
#pragma once
#include <torch/optim/schedulers/lr_scheduler.h>
#include <trireme/comm/world.h>
#include <trireme/parallel/data_loader.h>
#include <trireme/parallel/distributed.h>
#include <trireme/train/trainer_options.h>
#include <functional>
#include <memory>
#include <string>

namespace torch::optim {
class ReduceLROnPlateauScheduler;
}

namespace trireme {

class DataParallel;
class Loader;
class LoopRecord;

// One thread uses it. Make it behind the engines of the loop, on every rank.
class Checkpoint {
 public:
  // COLLECTIVE. `world`, `model` and `optimizer` outlive it. Of the options dir, every_steps,
  // keep, keep_every and background count. Without a dir nothing is written; an elastic job then
  // goes on from memory alone. Throws Error(io) and Error(invalid_argument) as checkpoint::Folder
  // does.
  template <typename Model>
  Checkpoint(World& world, Model& model, torch::optim::Optimizer& optimizer,
             CheckpointOptions options)
      : Checkpoint(world, module_of(model), optimizer, std::move(options)) {}
  Checkpoint(World& world, std::shared_ptr<torch::nn::Module> module,
             torch::optim::Optimizer& optimizer, CheckpointOptions options);
  // COLLECTIVE. Of a loop with DataParallel, which stays where it is and outlives the object.
  Checkpoint(World& world, DataParallel& replica, CheckpointOptions options);
  // Waits until what was saved is on the disk.
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;

  // More that continues. Call them before resume(), in the same order on each rank and in each
  // run. They outlive the object, and stay where they are. A further model has a name, which its
  // tensors begin with. Throws Error(invalid_argument) for two tensors of one name, for the
  // optimizer of a DataParallel without it, and for a DataParallel that was made with a Group.
  template <typename Model>
  void include(const std::string& name, Model& model, torch::optim::Optimizer& optimizer) {
    include_model(name, module_of(model), optimizer);
  }
  void include(const std::string& name, DataParallel& replica);
  void include(torch::optim::LRScheduler& schedule);
  void include(torch::optim::ReduceLROnPlateauScheduler& schedule);
  // Numbers of the programme, such as the best accuracy so far, the same on all ranks.
  void include(const std::string& name, double& number);
  void include(const std::string& name, int64_t& number);
  void include(LoaderPlace& loader);  // Of make_data_loader().
  void include(Loader& loader);
  void include(LoopRecord& record);  // Goes on from the step that it had at the commit.

  // COLLECTIVE. Continues from the newest whole checkpoint in the folder. Returns its step, or 0
  // if there is none. Throws Error(invalid_argument) naming what differs, on every rank.
  int64_t resume();
  // COLLECTIVE. Saves the state after `step` steps. Returns once it is copied; it is written
  // meanwhile. Throws Error(internal) naming a parameter that is NaN or infinite.
  void save(int64_t step);
  // COLLECTIVE. The end of a step: counts it, and saves if `every_steps` wants that. In an elastic
  // job it also keeps a copy in memory, and leaves the loop (by an exception that run_elastic()
  // catches) when the workers are to meet again.
  void commit();
  int64_t step() const;  // The steps that were committed, also before a resume.
  bool stopped() const;  // run_elastic() left the loop because the job was asked to stop.

 private:
  friend bool run_elastic(World& world, Checkpoint& checkpoint, const std::function<void()>& loop);
  void include_model(const std::string& name, std::shared_ptr<torch::nn::Module> module,
                     torch::optim::Optimizer& optimizer);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Resumes, and runs `loop` to its end, once in a programme. In an elastic job (`trireme launch
// --elastic MIN:MAX --
// ...`) a worker that is lost costs the steps since the last commit(): the others meet again, all
// take the newest state that one of them has in memory, and `loop` is called again. Processes that
// join get the state too. The loop therefore begins by what the checkpoint has, such as
// loader->epoch(). While it runs, SIGTERM, SIGINT and SIGHUP on any rank end the loop on all ranks
// after a step, in commit(): the state is saved, and run_elastic() returns true. (This needs a
// Distributed or a DataParallel in the loop.) Returns false if the job continues without this
// process. Throws what the loop throws, if no lost worker is the cause: every exception that is no
// trireme::Error and carries none (std::throw_with_nested()).
bool run_elastic(World& world, Checkpoint& checkpoint, const std::function<void()>& loop);

}  // namespace trireme
