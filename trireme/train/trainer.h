// Training by one word: the same job on one device, on threads, or on processes.
#pragma once
#include <trireme/comm/world.h>
#include <trireme/data/loader.h>
#include <trireme/monitor/resources.h>
#include <trireme/monitor/sink.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/plan/bucket_plan.h>
#include <trireme/train/callback.h>
#include <trireme/train/faults.h>
#include <trireme/train/guards.h>
#include <trireme/train/model.h>
#include <trireme/train/report.h>
#include <trireme/train/resize.h>
#include <trireme/train/schedule.h>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// What is trained. Factories are called once per replica.
struct Job {
  std::string name = "training";
  ModelFactory model;
  OptimizerFactory optimizer = SGD{.lr = 0.01};
  // Mean loss over the batch. Default: cross-entropy of logits [N, classes] and class indices.
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> loss;
  // How many targets the output got right, for accuracy. Default: the largest logit names the
  // class.
  std::function<int64_t(const at::Tensor& output, const at::Tensor& target)> correct;
};

struct CheckpointOptions {
  std::string dir;           // Empty: no checkpoints.
  int64_t every_steps = 0;   // 0: not by steps.
  int64_t every_epochs = 0;  // 0: not by epochs. The end of a run and a stop always save.
  int keep = 2;              // The newest so many stay,
  int64_t keep_every = 0;    // those of steps that are a multiple of it,
  int keep_best = 0;         // and so many of the lowest evaluation loss.
  bool background = true;    // Training goes on while a copy is written.
  // Who writes, each a part: the first rank of each host (hosts), or every rank (ranks), which
  // sends nothing, but a checkpoint is lost with any of them that dies while it is written.
  std::string writers = "hosts";
};

// Faults that the run is made to suffer (faults.h), for tests and rehearsals.
struct InjectOptions {
  std::vector<Fault> faults;
  std::string marks;  // Folder that remembers which have struck, also when the run is started
                      // again; empty: each process forgets.
};

struct TrainerOptions {
  // Changes behaviour.
  std::string strategy = "auto";  // one_device, mirrored (threads), multi_worker (processes), auto:
                                  // as workers and replicas say.
  int replicas = 1;               // Per worker.
  int64_t epochs = 10;
  int64_t steps = -1;  // Instead of epochs, if 0 or more.
  int64_t batch = 64;  // Global.
  uint64_t seed = 1;
  bool shuffle = true;
  bool drop_last = false;
  // Of parameters and data. bfloat16 and float16: with float32 masters, batch norms stay float32.
  at::ScalarType dtype = at::kFloat;
  std::optional<at::ScalarType>
      autocast;  // bfloat16 or float16: forward computes in it where that is safe; dtype float32.
  std::optional<GradScalerOptions> loss_scaling;  // With float16 it is on by itself.
  int accumulate = 1;  // Micro-batches a step: each replica's share is computed in so many parts.
  double clip_norm = 0;
  double ema_decay = 0;  // Above 0: an average of the parameters is kept; evaluation uses it.
  bool sync_batch_norm = false;  // Batch norm over the samples of all replicas.
  CompressionOptions compression;
  LocalSgdOptions local;
  // Above 0: the global batch is cut into so many pieces, each computed apart with random numbers
  // of its own and added up in a fixed order, so that any number of replicas up to it, also one
  // that changes, ends with the same bits (DataParallelOptions). The model must have no buffers
  // that training changes; parameters are not shared.
  int virtual_shards = 0;
  RateScaling rate_scaling;
  ResizeOptions resize;      // Of elastic jobs.
  ScheduleOptions schedule;  // every_steps and total_steps are filled in by the Trainer where 0.
  int64_t schedule_every_epochs = 0;
  int64_t evaluate_every = 1;  // Epochs; 0: only at the end.
  CheckpointOptions checkpoint;
  GuardOptions guard;
  InjectOptions inject;
  // Changes speed only.
  int loader_threads = 1;
  int prefetch = 2;
  int threads = 1;  // Of each replica's operators.
  // One copy of parameters and optimizer state for the replicas of a host (DataParallelOptions);
  // code in callbacks must not write parameters. Not with ema_decay, whose evaluation puts other
  // values there.
  bool share_parameters = true;
  plan::BucketOptions buckets;
  // Listeners.
  std::vector<std::shared_ptr<monitor::Sink>> sinks;  // Called on rank 0.
  std::vector<std::shared_ptr<Callback>> callbacks;
  // Called on rank 0 with the whole report, within fit(), to write it down. In an elastic job the
  // others stay until it has returned: should a process be lost before, it is called once more, on
  // this process or another.
  std::function<void(Report&)> publish;
  monitor::CostOptions cost;
  // Written into checkpoints. A run goes on only with the same "data..." in it (data_facts.h).
  Json config = Json::object();
  double started_at = 0;  // Unix time at which the command began; 0: now.
};

// A step whose gradients overflow under loss scaling, or that a guard skips, is skipped on all
// ranks: its data counts as used, but it is no step. Schedule, averages, the optimizer's counters
// and loss_history stay as they were.
//
// Dropout and every other random operation draw from a generator per replica, started anew each
// step from (seed, step, rank), or for each virtual shard from (seed, step, shard); batch norm
// normalises each replica's own samples (unless sync_batch_norm), and rank 0's running statistics
// are the ones that are evaluated and saved.
class Trainer {
 public:
  // Throws Error(invalid_argument) naming the option; nothing connects before fit().
  Trainer(World& world, TrainerOptions options);

  // COLLECTIVE. Resumes from checkpoint.dir if it holds a checkpoint; trains, evaluates on `test`
  // (may be null), saves. SIGTERM and SIGINT stop all replicas after the same step, with their
  // state saved (Report::stopped). Throws Error(internal) naming step and rank if a loss is NaN or
  // infinite and guard.policy is stop, Error(corrupt) if guard.check_replicas_every finds replicas
  // that differ; peer_lost, timeout, io and corrupt as the rooms below do. The report is complete
  // on rank 0 (elsewhere without files and totals over processes).
  Report fit(const Job& job, std::shared_ptr<const Source> train,
             std::shared_ptr<const Source> test = nullptr);

 private:
  World& world_;
  TrainerOptions options_;
};

}  // namespace trireme
