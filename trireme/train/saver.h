// Connects the engine with the checkpoint room. If every rank has the whole state, some ranks
// write it, each a part, and rank 0 hands it out to all. If the state lies on the ranks in slices,
// every rank writes and reads its own.
#pragma once
#include <trireme/checkpoint/writer.h>
#include <trireme/parallel/engine.h>
#include <trireme/train/progress.h>
#include <trireme/train/saver_slices.h>
#include <trireme/train/state_transfer.h>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// Everything that a run continues from, as one rank has it: read from a checkpoint, or kept in
// memory while a job regroups.
struct RunState {
  Progress progress;
  Json counters = Json::object();  // See EngineState.
  SavedTensors tensors;
  StateView own;  // The tensors of single ranks that this rank kept.
  // The path of the checkpoint; empty if the state comes from memory.
  std::string path;
  // The tensors are only this rank's part of the state, so that nobody can continue from them
  // alone. They are then in `held`, and not in `tensors`.
  bool in_slices = false;
  StateView held;  // Also those of the model, as copies. Without tensors of single ranks.
  StatePart part;  // The part that this is.
  int rank = 0;    // The rank in the generation that had this state.
  // The generation that made a copy of this part (neighbour_copies.h); -1: it is no copy.
  int generation = -1;
};

// Facts of the data and the run that a checkpoint must fit.
struct RunFacts {
  int64_t samples = 0;  // The number of training samples.
  uint64_t seed = 0;
  int64_t batch = 0;
  Json config = Json::object();
  std::map<std::string, std::string> aliases;  // See ModuleState.
  checkpoint::BestBy best_by = {};             // For `trireme ckpt prune`.
};

// The place where a generation writes checkpoints in parts (checkpoint/parts.h), and this rank's
// part.
struct PartsOfSaves {
  // Rank 0's name for the folder. Other ranks may know the folder by another name, or another
  // folder by this name.
  std::filesystem::path folder;
  // The name of this generation's saves; it is part of the names of unfinished checkpoints.
  std::string name;
  int index = -1, count = 1;  // -1: this rank writes nothing.
  // True if every rank writes; otherwise the first rank of each host does.
  bool of_all_ranks = false;
  std::vector<int> ranks;  // The rank that writes each part.
};
// Returns true if each rank of the group has a host to itself, or if the backend does not know.
bool has_host_to_itself(Group& group);
// COLLECTIVE. The result is empty if rank 0 writes alone: there is only one writer, or a writer
// cannot write into rank 0's folder.
std::optional<PartsOfSaves> agree_on_parts(bool of_all_ranks, const std::filesystem::path& folder,
                                           checkpoint::FileSystem& files, Group& group);

class Saver {
 public:
  // Only rank 0 has a `writer`; others pass null. If rank 0 passes null too, nothing is saved or
  // found. With `parts`, each rank that has a part has a writer. Rank 0 then writes the model, and
  // the rest is divided so that all write the same number of bytes. `let_all_write` is COLLECTIVE:
  // it gives every rank a writer and a part, or nothing if some rank cannot write. It is called if
  // the state lies in slices, and null if nothing is saved.
  using LetAllWrite = std::function<std::pair<checkpoint::Writer*, std::optional<PartsOfSaves>>()>;
  Saver(checkpoint::Writer* writer, std::optional<PartsOfSaves> parts, RunFacts facts,
        Group& group, LetAllWrite let_all_write = {});

  // COLLECTIVE. Gives every engine the state that rank 0 has `kept`, or else rank 0's newest whole
  // checkpoint, and fills the tensors of the run, which are the same on every rank. Kept
  // parameters and buffers are in rank 0's module; states that other ranks kept are ignored. Kept
  // states in slices make up one state if all its parts are there (parts_in_memory.h); otherwise
  // all go back to the newest checkpoint. If a checkpoint is in slices, every rank reads its own
  // from the folder, with begin_load() for each checkpoint that is tried. Returns nothing if there
  // is neither. With a kept state, tensors of single ranks stay as they are. Throws
  // Error(invalid_argument) that names the tensor or the fact in which checkpoint and run differ,
  // on every rank.
  // Parts in `copies` are of earlier steps. If the kept states do not make up one, the newest step
  // counts of which every part is among them, unless a checkpoint is newer.
  struct Restored {
    Progress progress;
    // The names in a file of the tensors that are the same on every rank and were found.
    std::set<std::string> found;
    std::string path;  // Only rank 0 has it.
    bool from_memory = false;
    bool from_copies = false;  // Then from_memory is true too.
    // The run goes on from another generation, from its memory or back from a checkpoint.
    bool goes_on = false;
    int64_t bytes_read = 0;  // By this rank, of tensors' files, if it read slices.
  };
  std::optional<Restored> restore(Engine& engine, const StateView& of_run,
                                  std::optional<RunState> kept = std::nullopt,
                                  const std::vector<const RunState*>& copies = {});
  // COLLECTIVE: every rank's own state is collected unless all ranks write. Call it after the
  // engine's prepare_to_read(). `state` has the engine's tensors and those of the run. A rank
  // continues once its tensors are copied. `evaluation` belongs to this step; it is JSON with a
  // loss, or null. Throws Error(internal) that names the tensor if a parameter is NaN or infinite,
  // because a resume from such a checkpoint would fail for ever; older checkpoints then stay.
  // Throws Error(io) if this save or an earlier one failed.
  void save(const EngineState& state, const Progress& progress, const Json& evaluation = {});
  bool writes() const { return writer_ != nullptr; }  // True if this rank writes.
  bool has_slices() const { return slices_.any(); }   // True on all ranks if the state has any.
  // COLLECTIVE. Waits until every rank's part is on its disk, however long that takes. A rank
  // without a part waits for an answer no longer than `at_once`, and then asks again.
  void wait_for_all(Milliseconds at_once);
  // Returns, on rank 0, the checkpoints that have become durable since the last call. With `all`
  // it waits until every save is durable. Throws Error(io) if a save failed.
  std::vector<std::string> saved(bool all);

 private:
  void check_facts(const checkpoint::Manifest& manifest) const;
  void check_elsewhere(const checkpoint::Saved& saved) const;
  // COLLECTIVE. Other processes begin to write their parts, which come behind those of `part`.
  void save_elsewhere(const StateElsewhere& elsewhere, int64_t step, checkpoint::Part& part);
  std::optional<RunState> read(const StateView& model);
  std::optional<Restored> restore_parts(Engine& engine, const StateView& of_run,
                                        const RunState* kept,
                                        const std::vector<const RunState*>& copies);
  int64_t newest_saved_step() const;
  StateView wanted_of_model(const StateView& state) const;
  std::pair<StateView, StateView> divided(const StateView& state) const;
  std::optional<Restored> restore_slices(Engine& engine, const StateView& of_run, bool must_find);
  // COLLECTIVE. One attempt with one checkpoint; the error is the same on all ranks.
  std::optional<Error> read_slices(Engine& engine, const StateView& of_run, const Json& head,
                                   checkpoint::SliceReader* opened, Restored& restored);
  checkpoint::SliceReader& open_as_rank_0(const Json& head,
                                          std::optional<checkpoint::SliceReader>& own) const;
  void read_own_model(const StateView& state, checkpoint::SliceReader& reader) const;
  // COLLECTIVE. Returns true if the state has slices. Then every rank has a writer, if any has.
  bool learn_slices(const StateView& view);
  void save_slices(const EngineState& state, const Progress& progress, const Json& evaluation);
  checkpoint::Manifest manifest_of(const EngineState& state, const Progress& progress,
                                   const Json& evaluation) const;
  RunFacts facts_;
  Group& group_;
  checkpoint::Writer* writer_;
  std::optional<PartsOfSaves> parts_;
  const LetAllWrite let_all_write_;
  StateSlices slices_;
  std::string elsewhere_;  // StateElsewhere::text
  std::string name_;       // Of the saves of rank 0 alone; see PartsOfSaves.
  int64_t saves_ = 0;
};

}  // namespace trireme
