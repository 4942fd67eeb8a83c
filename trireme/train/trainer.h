// Training by one word: the same job runs on one device, on threads, or on processes.
#pragma once
#include <trireme/comm/world.h>
#include <trireme/data/loader.h>
#include <trireme/faults/faults.h>
#include <trireme/monitor/resources.h>
#include <trireme/monitor/sink.h>
#include <trireme/parallel/engine.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/plan/bucket_plan.h>
#include <trireme/train/callback.h>
#include <trireme/train/guards.h>
#include <trireme/train/report.h>
#include <trireme/train/resize.h>
#include <trireme/train/schedule.h>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// The model, the optimizer and the loss function to train. Factories are called
// once for each replica.
struct Job {
  std::string name = "training";
  ModelFactory model;
  OptimizerFactory optimizer = SGD{.lr = 0.01};
  // Default: cross-entropy of logits [N, classes] and class indices.
  LossFunction loss;
  // Returns the number of targets that the output got right, for accuracy. Default: the class with
  // the largest logit counts.
  OfBatch<int64_t> correct;
};

struct CheckpointOptions {
  std::string dir;          // If empty, there are no checkpoints.
  int64_t every_steps = 0;  // 0: not by steps.
  // 0: not by epochs. The end of a run and a stop always save.
  int64_t every_epochs = 0;
  // The number of newest checkpoints that stay.
  int keep = 2;
  // Checkpoints of steps that are a multiple of it stay too; 0: none.
  int64_t keep_every = 0;
  // The number of checkpoints with the lowest evaluation loss that stay too.
  int keep_best = 0;
  // Training continues while a copy is written.
  bool background = true;
  // The ranks that write a part each. hosts: the first rank of each host. ranks: every
  // rank; nothing is then sent between ranks, but a checkpoint is lost if any rank is
  // lost while it is written.
  std::string writers = "hosts";
};

// Faults that are injected into the run (faults.h), for tests and rehearsals.
struct InjectOptions {
  std::vector<Fault> faults;
  // The folder that remembers which faults have struck, also when the run is started again. If
  // empty, each process forgets them when it ends.
  std::string marks;
};

struct TrainerOptions {
  // These options change behaviour.

  // one_device, mirrored (threads), multi_worker (processes), or auto: chosen by the numbers of
  // workers and replicas. Or the name of a strategy of your own (parallel/engine.h).
  std::string strategy = "auto";
  int replicas = 1;  // The number of replicas in each worker.
  int64_t epochs = 10;
  int64_t steps = -1;  // Replaces epochs if 0 or more.
  int64_t batch = 64;  // The global batch.
  uint64_t seed = 1;
  bool shuffle = true;
  bool drop_last = false;
  // The type of parameters and data. With bfloat16 and float16, masters and
  // batch norms are float32.
  at::ScalarType dtype = at::kFloat;
  // bfloat16 or float16: forward computes in it where that is safe. dtype must be float32.
  std::optional<at::ScalarType> autocast;
  // Loss scaling; on by itself with float16.
  std::optional<GradScalerOptions> loss_scaling;
  // The number of micro-batches of a step: each replica's share is computed in
  // this number of parts.
  int accumulate = 1;
  double clip_norm = 0;
  // If above 0, an average of the parameters is kept, and evaluation uses it.
  double ema_decay = 0;
  bool sync_batch_norm = false;  // Batch norm over the samples of all replicas.
  plan::CompressionOptions compression;
  plan::LocalSgdOptions local;
  // If above 0, the global batch is cut into this number of pieces. Each is computed separately
  // with its own random numbers, and the results are added in a fixed order. Any number of
  // replicas up to it then gives the same bits, even if the number changes (DataParallelOptions).
  // The model must have no buffers that training changes, and parameters are not shared.
  int virtual_shards = 0;
  RateScaling rate_scaling;
  ResizeOptions resize;  // Only elastic jobs use it.
  // The Trainer fills in every_steps and total_steps where they are 0.
  ScheduleOptions schedule;
  int64_t schedule_every_epochs = 0;
  int64_t evaluate_every = 1;  // The interval in epochs; 0: only at the end.
  CheckpointOptions checkpoint;
  GuardOptions guard;
  InjectOptions inject;
  // These options change only speed.

  int loader_threads = 1;
  int prefetch = 2;
  int threads = 1;  // The threads of each replica's operators.
  // The replicas of a host share one copy of parameters and optimizer state (DataParallelOptions).
  // Code in callbacks must not write parameters. Not used with ema_decay, because evaluation then
  // puts other values into the parameters.
  bool share_parameters = true;
  plan::BucketOptions buckets;
  // Listeners.
  std::vector<std::shared_ptr<monitor::Sink>> sinks;  // Called on rank 0.
  std::vector<std::shared_ptr<Callback>> callbacks;
  // Called on rank 0 with the complete report, within fit(), to write it. In an elastic job the
  // other workers stay until it has returned. If a process is lost before that, it is called once
  // more, on this process or another.
  std::function<void(Report&)> publish;
  monitor::CostOptions cost;
  // Written into checkpoints. A run continues only if the keys "data..." are
  // the same (data_facts.h).
  Json config = Json::object();
  double started_at = 0;  // The Unix time at which the command began; 0: now.
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
  // Throws Error(invalid_argument) that names the option. Opens no connection; fit() does.
  Trainer(World& world, TrainerOptions options);

  // COLLECTIVE. Resumes from checkpoint.dir if it holds a checkpoint; trains, evaluates on `test`
  // (may be null) and saves. SIGTERM and SIGINT stop all replicas after the same step, and their
  // state is saved (Report::stopped). Throws Error(internal) that names step and rank if a loss is
  // NaN or infinite and guard.policy is stop. Throws Error(corrupt) if guard.check_replicas_every
  // finds replicas that differ. Throws peer_lost, timeout, io and corrupt as the rooms below do.
  // The report is complete on rank 0; on other ranks it lacks files and totals over processes.
  Report fit(const Job& job, std::shared_ptr<const Source> train,
             std::shared_ptr<const Source> test = nullptr);

 private:
  World& world_;
  TrainerOptions options_;
};

}  // namespace trireme
