// Between the engine and the checkpoint room: what a replica's state is, written by rank 0 and handed to all.
#pragma once
#include <trireme/checkpoint/folder.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/train/engine_state.h>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace trireme {

// Where a run stands; equal on every replica (loss_history: on rank 0).
struct Progress {
  int64_t step = 0;             // Committed.
  int64_t skipped_steps = 0;    // Whose gradients overflowed under loss scaling: data was used, nothing updated.
  plan::DataPosition position;  // Of the next batch.
  std::vector<double> loss_history;
};

// Facts of the data and the run that a checkpoint must fit.
struct RunFacts {
  int64_t samples = 0;  // Of the training set.
  uint64_t seed = 0;
  int64_t batch = 0;
  Json config = Json::object();
};

class Saver {
 public:
  // On rank 0 with a folder: proves it can be written. `dir` may be empty: then nothing is saved or found.
  Saver(std::string dir, int keep, RunFacts facts, Group& group);

  // COLLECTIVE. Rank 0's newest whole checkpoint becomes the state of every replica. Empty if there is none. Throws Error(invalid_argument)
  // naming the tensor or the fact in which checkpoint and run differ.
  struct Restored {
    Progress progress;
    std::set<std::string> shared;  // Which of the engine's shared tensors the checkpoint had.
    std::string path;              // On rank 0.
  };
  std::optional<Restored> restore(DataParallel& replica, EngineState& engine);
  // COLLECTIVE (buffers are handed out, every rank's own state is collected). Returns the path on rank 0, empty elsewhere. Throws
  // Error(internal) naming the tensor, and leaves older checkpoints alone, if a parameter is NaN or infinite: resuming from that would fail
  // for ever.
  std::string save(DataParallel& replica, const Progress& progress, const EngineState& engine);

 private:
  void check_facts(const checkpoint::Manifest& manifest) const;
  RunFacts facts_;
  Group& group_;
  std::optional<checkpoint::Folder> folder_;  // On rank 0.
};

}  // namespace trireme
