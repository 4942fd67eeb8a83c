// The functions that a user can hook into training.
#pragma once
#include <trireme/monitor/sink.h>
#include <cstdint>
#include <memory>

namespace torch::nn {
class Module;
}

namespace trireme {

// The view that a callback has of the replica on which it is called.
struct TrainContext {
  int rank = 0;
  int world_size = 1;
  torch::nn::Module& module;
  bool stop = false;  // Set it to stop all replicas after the next step.
};

// One object serves all replicas of a process. Each replica calls it from its own thread, so
// shared state needs a lock. The calls are made at the same points on every rank, and a callback
// that communicates must do so on every rank.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual void on_fit_start(TrainContext&) {}
  virtual void on_step(TrainContext&, const monitor::StepRecord&) {}
  virtual void on_epoch_end(TrainContext&, int64_t /*epoch*/) {}
  virtual void on_evaluate(TrainContext&, const monitor::EvalRecord&) {}
  // Called only on rank 0.
  virtual void on_checkpoint(TrainContext&, const std::string& /*path*/) {}
  virtual void on_fit_end(TrainContext&) {}
};

}  // namespace trireme
