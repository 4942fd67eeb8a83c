// The options of a Trainer, their keys in a configuration, and the rules between them. No torch.
#pragma once
#include <trireme/base/json.h>
#include <trireme/config/rows.h>
#include <trireme/faults/faults.h>
#include <trireme/monitor/resources.h>
#include <trireme/monitor/sink.h>
#include <trireme/parallel/grad_scaler.h>
#include <trireme/parallel/memory_options.h>
#include <trireme/plan/batch_sizes.h>
#include <trireme/plan/bucket_plan.h>
#include <trireme/plan/data_parallel_plan.h>
#include <trireme/plan/division.h>
#include <trireme/plan/order_options.h>
#include <trireme/plan/ps_options.h>
#include <trireme/plan/tensor_spec.h>
#include <trireme/train/early_stop.h>
#include <trireme/train/evaluation_curve.h>
#include <trireme/train/guards.h>
#include <trireme/train/resize.h>
#include <trireme/train/schedule.h>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

class Callback;
struct Report;

struct CheckpointOptions {
  std::string dir;          // If empty, there are no checkpoints.
  int64_t every_steps = 0;  // 0: not by steps.
  // 0: not by epochs. The end of a run and a stop always save.
  int64_t every_epochs = 0;
  // The number of newest checkpoints that stay.
  int keep = 2;
  // Checkpoints of steps that are a multiple of it stay too; 0: none.
  int64_t keep_every = 0;
  // The number of checkpoints with the best evaluations that stay too.
  int keep_best = 0;
  std::string measure = "loss";  // The name of a Measure, by which keep_best compares.
  // Training continues while a copy is written.
  bool background = true;
  // In an elastic job whose ranks have parts of the state: the steps between copies of each rank's
  // part in the memory of another one (neighbour_copies.h); 0: none.
  int64_t memory_every = 0;
  // The ranks that write a part each. hosts: the first rank of each host. ranks: every
  // rank; nothing is then sent between ranks, but a checkpoint is lost if any rank is
  // lost while it is written.
  std::string writers = "hosts";
};
config::Rows rows_of(const CheckpointOptions*);

// Faults that are injected into the run (faults/faults.h), for tests and rehearsals.
struct InjectOptions {
  std::vector<Fault> faults;
  // The folder that remembers which faults have struck, also when the run is started again. If
  // empty, each process forgets them when it ends.
  std::string marks;
};
config::Rows rows_of(const InjectOptions*);

struct TrainerOptions {
  // These options change behaviour.

  // one_device, mirrored (threads), multi_worker (processes), or auto: chosen by the numbers of
  // workers and replicas. Or the name of a strategy of your own (parallel/engine.h).
  std::string strategy = "auto";
  // The number of replicas in each worker. -1: 1, or for mirrored the host's cores, at most 8.
  int replicas = 1;
  int64_t epochs = 10;  // -1: 10, unless steps are given.
  int64_t steps = -1;   // Replaces epochs if 0 or more.
  // The global batch. 0: micro_batch x accumulate x replicas.
  int64_t batch = 64;
  uint64_t seed = 1;
  // The order of an epoch's samples; true is full, false is none (plan/sample_order.h).
  plan::OrderOptions shuffle;
  bool drop_last = false;
  // The type of parameters and data. With bfloat16 and float16, masters and
  // batch norms are float32.
  plan::DType dtype = plan::DType::float32;
  // cpu, cuda (each replica of a host takes the next device), cuda:1, or another of LibTorch's.
  std::string device = "cpu";
  // bfloat16 or float16: forward computes in it where that is safe. dtype must be float32.
  std::optional<plan::DType> autocast;
  // Loss scaling; on by itself with float16.
  std::optional<GradScalerOptions> loss_scaling;
  // The number of micro-batches of a step: each replica's share is computed in this number of
  // parts. 0: as many as micro_batch asks for, or 1.
  int accumulate = 0;
  int64_t micro_batch = 0;  // Samples of a replica in a micro-batch; 0: its share / accumulate.
  double clip_norm = 0;
  MemoryOptions memory;  // The place of activations between forward and backward.
  // If above 0, an average of the parameters is kept, and evaluation uses it.
  double ema_decay = 0;
  bool sync_batch_norm = false;  // Batch norm over the samples of all replicas.
  plan::CompressionOptions compression;
  plan::LocalSgdOptions local;
  plan::DivisionOptions division;  // The parts of the model and its state that ranks have.
  // If above 0, the global batch is cut into this number of pieces. Each is computed separately
  // with its own random numbers, and the results are added in a fixed order. Any number of
  // replicas up to it then gives the same bits, even if the number changes (DataParallelOptions).
  // The model must have no buffers that training changes, and parameters are not shared.
  int virtual_shards = 0;
  RateScaling rate_scaling;
  plan::PsOptions ps;    // With strategy parameter_server.
  ResizeOptions resize;  // Only elastic jobs use it.
  // The Trainer fills in every_steps and total_steps where they are 0.
  ScheduleOptions schedule;
  int64_t schedule_every_epochs = 0;
  int64_t evaluate_every = 1;  // The interval in epochs; 0: only at the end.
  CheckpointOptions checkpoint;
  EarlyStopOptions early_stop;
  EvaluatorOptions evaluator;  // Of the side task, if the job has one.
  GuardOptions guard;
  InjectOptions inject;
  // These options change only speed.

  // The threads of each replica that load ahead, and the batches that it holds ready; -1: tuned
  // while training goes on (data/loader.h).
  int loader_threads = -1;
  int prefetch = -1;
  // The memory of the input of a host: batches that are ready, and the stage cache. -1: a quarter
  // of the memory that is free. A configuration has it as data.memory_bytes.
  int64_t input_bytes = -1;
  // The bytes of caches in memory that the workers of a host share (train/share_caches.h), where
  // no launcher of Trireme has made them; 0: each has its own.
  int64_t cache_bytes = 0;
  int caches = 2;  // The number of those caches: the training part and the test part.
  // The threads of each replica's operators. 0: those that LibTorch has in this process, and 1
  // with virtual shards.
  int threads = 1;
  // The replicas of a host share one copy of parameters and optimizer state (DataParallelOptions).
  // Code in callbacks must not write parameters. Not used with ema_decay, because evaluation then
  // puts other values into the parameters, nor with an injected corruption.
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
  // the same (data_facts.h). The Trainer sets "data.shuffle" and what belongs to it from
  // `shuffle`.
  Json config = Json::object();
  double started_at = 0;  // The Unix time at which the command began; 0: now.
};
config::Rows rows_of(const TrainerOptions*);

// Throws Error(invalid_argument) if a value is out of its range, or if two options exclude each
// other. The message begins with a key.
void check(const TrainerOptions& options);

// The value of train.precision, as a configuration has it: "bf16".
std::string precision_text(const TrainerOptions& options);

// The strategy with `auto` replaced by what it means for a number of workers.
struct ResolvedStrategy {
  std::string name;  // one_device, mirrored, multi_worker, or one that was registered
  int workers = 1, replicas_per_worker = 1, world_size = 1;
  plan::BatchSizes batch;  // Those of the options, and everything that follows.
};
// Throws Error(invalid_argument) if `workers`, the value of --workers, is below 1.
void require_workers(int workers);
// Resolves the strategy. Throws Error(invalid_argument) with a remedy if strategy, replicas,
// global batch or virtual shards do not fit the workers, or if the strategy does not honour one of
// the options. `cores` is the number that mirrored may
// fill; 0: the cores that this process may run on. Every worker gets the same answer if the number
// of replicas is given, or if the strategy is not mirrored.
ResolvedStrategy resolve_strategy(const TrainerOptions& options, int workers, int cores = 0);

// The workers of an elastic job that come and go together, because they have one copy of the
// model between them.
int unit_of(const TrainerOptions& options);
// Throws as resolve_strategy() does, and says so, for a number of workers that an elastic job of
// so many may take: multiples of the unit.
void check_sizes(const TrainerOptions& options, int least, int most);

// Whether replicas may share one copy of the parameters. With an injected corruption they do not,
// because replicas that share one copy cannot differ from each other.
bool may_share_parameters(const TrainerOptions& options);

}  // namespace trireme
