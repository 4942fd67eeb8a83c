// Between the engine and the checkpoint room: what a replica's state is, written by the ranks, each
// a part, and handed to all by rank 0.
#pragma once
#include <trireme/checkpoint/writer.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/train/engine_state.h>
#include <trireme/train/ledger.h>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace trireme {

// Where a run stands; equal on every replica (loss_history: on rank 0).
struct Progress {
  int64_t step = 0;  // Committed.
  int64_t skipped_steps =
      0;  // Whose gradients overflowed or that a guard skipped: data was used, nothing updated.
  plan::DataPosition position;  // Of the next batch.
  bool stopping = false;        // All agreed to stop; not in checkpoints, where a run goes on.
  std::vector<double> loss_history;
  Ledger ledger;
  Json guard;   // Guard's state.
  Json resize;  // Resize's.
};

// All that a run goes on from, as one rank has it: read from a checkpoint, or kept in memory while
// a job regroups.
struct RunState {
  Progress progress;
  OptimizerState optimizer;
  Json counters = Json::object();  // EngineState's.
  std::map<std::string, at::Tensor>
      engine;        // Its tensors by their names in a file (engine_state.h).
  int ranks = 0;     // That wrote them; 0: those of single ranks are not there.
  std::string path;  // Of the checkpoint; empty: from memory.
};

// Facts of the data and the run that a checkpoint must fit.
struct RunFacts {
  int64_t samples = 0;  // Of the training set.
  uint64_t seed = 0;
  int64_t batch = 0;
  Json config = Json::object();
};

// Where a generation writes checkpoints in parts (checkpoint/parts.h), and which of them is this
// rank's.
struct PartsOfSaves {
  std::filesystem::path folder;  // Rank 0's; each may know the folder by a name of its own, or
                                 // another one by the same.
  std::string name;           // Of this generation's saves, in the names of what is not finished.
  int index = -1, count = 1;  // -1: this rank writes nothing.
  bool of_all_ranks = false;  // Otherwise of the first rank of each host.
  std::vector<int> ranks;     // By part: who writes it.
};
bool has_host_to_itself(Group& group);  // Each rank of it; also where the carrier does not tell.
// COLLECTIVE. Empty if there is one writer only, or if one of them cannot write where rank 0 does:
// then rank 0 writes alone.
std::optional<PartsOfSaves> agree_on_parts(bool of_all_ranks, const std::filesystem::path& folder,
                                           checkpoint::FileSystem& files, Group& group);

class Saver {
 public:
  // `writer` is rank 0's, and null elsewhere; null there too: nothing is saved or found. With
  // `parts` each rank that has one has a writer: the model is rank 0's, the rest is dealt out so
  // that all write as many bytes.
  Saver(checkpoint::Writer* writer, std::optional<PartsOfSaves> parts, RunFacts facts,
        Group& group);

  // COLLECTIVE. What rank 0 has `kept`, else its newest whole checkpoint, becomes the state of
  // every replica (kept parameters and buffers are in rank 0's module; what other ranks kept does
  // not count). Empty if there is neither. Of what is kept, tensors of single ranks stay as they
  // are. Throws Error(invalid_argument) naming the tensor or the fact in which checkpoint and run
  // differ.
  struct Restored {
    Progress progress;
    std::set<std::string> shared;  // Which of the engine's shared tensors the checkpoint had.
    std::string path;              // On rank 0.
    bool from_memory = false;
  };
  std::optional<Restored> restore(DataParallel& replica, EngineState& engine,
                                  std::optional<RunState> kept = std::nullopt);
  // COLLECTIVE (buffers are handed out; every rank's own state is collected, unless all ranks
  // write). A rank goes on once its tensors are copied. `evaluation` (JSON with a loss, or null) is
  // of this step. Throws Error(internal) naming the tensor, and leaves older checkpoints alone, if
  // a parameter is NaN or infinite: resuming from that would fail for ever. Throws Error(io) for
  // this save or an earlier one that failed.
  void save(DataParallel& replica, const Progress& progress, const EngineState& engine,
            const Json& evaluation = {});
  bool writes() const { return writer_ != nullptr; }  // This rank.
  // COLLECTIVE. Until every rank's part is on its disk, however long that takes: a rank that has
  // nothing to write waits no longer than `at_once` for an answer, and asks again.
  void wait_for_all(Milliseconds at_once);
  // The checkpoints that have become durable since the last call, on rank 0; with `all`, waits
  // until each is. Throws Error(io) likewise.
  std::vector<std::string> saved(bool all);

 private:
  void check_facts(const checkpoint::Manifest& manifest) const;
  std::optional<RunState> read(DataParallel& replica);
  checkpoint::Manifest manifest_of(const DataParallel& replica, const Progress& progress,
                                   const EngineState& engine, const OptimizerState& optimizer,
                                   const Json& evaluation) const;
  RunFacts facts_;
  Group& group_;
  checkpoint::Writer* const writer_;
  const std::optional<PartsOfSaves> parts_;
  int64_t saves_ = 0;
};

}  // namespace trireme
