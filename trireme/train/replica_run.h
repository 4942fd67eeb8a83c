// One replica's training from start to end: the loop that every strategy runs.
#pragma once
#include <trireme/train/trainer.h>
#include <memory>
#include <string>

namespace trireme {

struct ReplicaResult {
  int rank = 0;
  Report report;  // All but wall time, speed and cost.
  double train_seconds = 0;
  int64_t train_samples = 0;
};

struct ReplicaSetting {
  World& world;
  const TrainerOptions& options;
  const Job& job;
  std::shared_ptr<const Source> train;
  std::shared_ptr<const Source> test;  // May be null.
  std::shared_ptr<Group> group;
  std::shared_ptr<Group> norm_group;  // Of batch norms over all replicas; null: each normalises its own samples.
  monitor::PssSampler& pss;           // Of this process.
  bool leads_worker = true;           // The first replica of its process tells heartbeats what is being done.
};

// COLLECTIVE over the group; on the calling thread.
ReplicaResult run_replica(const ReplicaSetting& setting);

}  // namespace trireme
