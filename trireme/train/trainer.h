// Training by one word: the same job runs on one device, on threads, or on processes.
#pragma once
#include <trireme/comm/world.h>
#include <trireme/data/loader.h>
#include <trireme/parallel/engine.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/train/callback.h>
#include <trireme/train/metric.h>
#include <trireme/train/report.h>
#include <trireme/train/trainer_options.h>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

// The model, the optimizer and the loss function to train. Factories are called
// once for each replica.
struct Job {
  std::string name = "training";
  ModelFactory model;
  // The embedding tables of the model that live on parameter servers, for strategy
  // parameter_server; null: none. The model's layers get their rows from them.
  std::shared_ptr<ModelTables> tables = {};
  OptimizerFactory optimizer = SGD{.lr = 0.01};
  // Default: cross-entropy of logits [N, classes] and class indices.
  LossFunction loss;
  // Returns the number of targets that the output got right, for accuracy. Default: the class with
  // the largest logit counts.
  OfBatch<int64_t> correct;
  std::vector<Metric> metrics = {};  // More values of each evaluation.
  // Why this process cannot begin with the model as it is made: it only goes on, from a checkpoint
  // or from the state of others. Empty: it can.
  std::string has_no_start = {};
};

// If gradients overflow under loss scaling, or a guard skips a batch, all ranks skip it: its data
// counts as used, but it is no step. Schedule, averages, the optimizer's counters and loss_history
// stay as they were.
//
// Dropout and all other random operations draw from a generator of each replica. In each step the
// generator starts anew from (seed, step, rank), or for each virtual shard from (seed, step,
// shard). Batch norm normalises each replica's own samples (unless sync_batch_norm is set), and
// rank 0's running statistics are evaluated and saved.
class Trainer {
 public:
  // Replaces `auto` in the options. Throws Error(invalid_argument) that names the option. Opens no
  // connection; fit() does.
  Trainer(World& world, TrainerOptions options);

  // COLLECTIVE. Resumes from checkpoint.dir if it holds a checkpoint; trains, evaluates on `test`
  // (may be null) and saves. SIGTERM and SIGINT stop all replicas after the same step, and their
  // state is saved (Report::stopped). Throws Error(internal) that names step and rank if a loss is
  // NaN or infinite and guard.policy is stop. Throws Error(corrupt) if guard.check_replicas_every
  // finds replicas that differ. Throws peer_lost, timeout, io and corrupt as the rooms below do.
  // The report is complete on rank 0; on other ranks it lacks files and totals over processes.
  Report fit(const Job& job, std::shared_ptr<const Source> train,
             std::shared_ptr<const Source> test = nullptr);

  // For a side task of the role ps, instead of fit(): serves a part of the model (docs/
  // parameter_server.md) until all workers have ended, or this process is asked to stop. Throws
  // Error(invalid_argument) for a task that is no server of these options, and as World does.
  void serve(const Job& job, std::shared_ptr<const Source> train,
             std::shared_ptr<const Source> test = nullptr);

  // For a side task of the role evaluator, instead of fit(): evaluates each new checkpoint in
  // checkpoint.dir on `test`, until all workers have ended or this process is asked to stop, and
  // then the newest. Adds a line for each to the file `curve`, tells options.sinks, and keeps the
  // best checkpoint in checkpoint.dir/best. Goes on with the curve of a process before it. Throws
  // Error(invalid_argument) for another task, without checkpoint.dir or test samples, and as World
  // and checkpoints do.
  void evaluate_checkpoints(const Job& job, std::shared_ptr<const Source> train,
                            std::shared_ptr<const Source> test,
                            const std::filesystem::path& curve);

 private:
  Report run(const Job& job, std::shared_ptr<const Source> train,
             std::shared_ptr<const Source> test);

  World& world_;
  TrainerOptions options_;
  std::vector<at::Device> devices_;  // By replica of this worker.
};

}  // namespace trireme
