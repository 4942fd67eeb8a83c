// One replica's training from start to end: the loop that every strategy runs.
#pragma once
#include <trireme/train/trainer.h>
#include <map>
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
  monitor::PssSampler& pss;            // Of this process.
  bool leads_worker =
      true;  // The first replica of its process tells heartbeats what is being done.
};

// Used by one thread, the one that makes it; model and progress live as long as it does, all else
// as long as a generation.
class ReplicaRun {
 public:
  explicit ReplicaRun(const ReplicaSetting& setting);  // Makes the model.
  ~ReplicaRun();

  enum class End { finished, regroup };
  // COLLECTIVE over the group. Trains to the end, or until all agreed to regroup after a step
  // (elastic jobs). norm_group: of batch norms over all replicas; null: each normalises its own
  // samples. After an error of a lost peer, unbind() and run() in the next generation's groups goes
  // on behind the newest step that a survivor has committed.
  End run(std::shared_ptr<Group> group, std::shared_ptr<Group> norm_group);
  void
  unbind();  // Keeps the state in memory, and lets go of the groups and of the checkpoint folder.
  bool is_torn() const;  // After an error, before unbind(): its state is of no step; nobody shall
                         // go on from it.
  int64_t committed() const;  // Steps that it has the state of; -1: none yet.
  const ReplicaResult& result() const;
  std::map<std::string, std::string> facts_of_model() const;  // What all replicas must have alike.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
