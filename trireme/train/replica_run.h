// One replica's training from start to end: the loop that every strategy runs.
#pragma once
#include <trireme/train/replica_groups.h>
#include <trireme/train/trainer.h>
#include <map>
#include <memory>
#include <string>

namespace trireme {

struct ReplicaResult {
  int rank = 0;
  Report report;  // Everything except wall time, speed and cost.
  double train_seconds = 0;
  int64_t train_samples = 0;
};

struct ReplicaSetting {
  World& world;
  const TrainerOptions& options;
  const Job& job;
  std::shared_ptr<const Source> train;
  std::shared_ptr<const Source> test;  // May be null.
  // Measures the memory of this process.
  monitor::PssSampler& pss;
  // True for the first replica of its process: it tells heartbeats the current phase.
  bool leads_worker = true;
  at::Device device = at::kCPU;
};

// Used only by the thread that makes it. Model and progress live as long as this object,
// everything else as long as a generation.
class ReplicaRun {
 public:
  explicit ReplicaRun(const ReplicaSetting& setting);  // Makes the model.
  ~ReplicaRun();

  enum class End { finished, regroup };
  // COLLECTIVE over the group. Trains to the end, or in an elastic job until all ranks have agreed
  // to regroup after a step. After an error that a peer was lost, call unbind(), then
  // run() with the groups of the next generation: training continues after the newest step that a
  // survivor has committed.
  End run(ReplicaGroups groups);
  // Keeps the state in memory, and releases the groups and the checkpoint folder.
  void unbind();
  // True after an error, before unbind(), if the state belongs to no step. No process
  // may continue from it.
  bool is_torn() const;
  // The number of committed steps in its state; -1: none yet.
  int64_t committed() const;
  const ReplicaResult& result() const;
  // Facts that must be equal in all replicas.
  std::map<std::string, std::string> facts_of_model() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
