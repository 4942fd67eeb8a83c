// The record of a training loop of one's own: progress, JSON lines, TensorBoard and a report, as
// `trireme train` writes them (docs/report.md).
//
//   trireme::LoopRecord record(world, {.dir = "runs/mine", .total_steps = 1000});
//   ...
//     optimizer.step();
//     record.scalar("critic/loss", critic_loss);
//     record.step(loss, optimizer);
//   ...
//   record.end();
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/json.h>
#include <trireme/comm/world.h>
#include <trireme/monitor/resources.h>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace torch::optim {
class Optimizer;
}

namespace trireme {

struct LoopRecordOptions {
  std::string name = "training";  // What people read in the first line.
  std::string dir;  // The folder of log.jsonl, events/ and report.json. If empty: no files.
  int64_t total_steps = 0;      // 0: unknown.
  int64_t steps_per_epoch = 0;  // 0: unknown; all steps are then of epoch 0.
  bool progress = true, json_lines = true, tensorboard = true;
  bool stop_on_nan = true;  // A loss that is NaN or infinite is an error on every rank.
  monitor::CostOptions cost;
};

// One thread uses it. Rank 0 writes; in an elastic job another process may become rank 0.
class LoopRecord {
 public:
  // COLLECTIVE. `world` outlives it. Throws Error(invalid_argument) naming an option, and
  // Error(io) if rank 0 cannot write in the folder.
  LoopRecord(World& world, LoopRecordOptions options = {});
  ~LoopRecord();
  LoopRecord(const LoopRecord&) = delete;

  // A value of this rank, under a name such as "critic/loss". The mean over the global batch is
  // written with the next step(). All ranks name the same values in a step.
  void scalar(const std::string& name, double value);
  // COLLECTIVE. The end of a step, before Checkpoint::commit(), if the loop has one. A record that
  // is not included in the Checkpoint goes on from the number of its commits. `loss` is this
  // rank's mean over its samples, one element of any type. Reads the learning rate of the
  // optimizer's first group. Returns the mean over the global batch. Throws Error(internal) naming
  // the ranks whose loss is NaN or infinite, and Error(invalid_argument) if the ranks name other
  // values.
  double step(const at::Tensor& loss, const torch::optim::Optimizer& optimizer);
  double step(double loss, double learning_rate = 0);
  // The result of an evaluation, the same on all ranks (metrics.h). `metrics` are more values, by
  // name.
  void evaluated(double loss, double accuracy, std::map<std::string, double> metrics = {});
  void message(const std::string& text);
  int64_t steps() const;  // Those that were recorded, also before a resume.
  // COLLECTIVE. Writes the report, and returns it on every rank. It has the keys of
  // docs/report.md that a loop of one's own has.
  Json end();

 private:
  friend class Checkpoint;
  void go_on_from(int64_t step);  // When the loop's state is that of this step.
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
