// The checkpoints of one replica through all generations of a run: the folder, the writers, and
// the saver of the present generation.
#pragma once
#include <trireme/checkpoint/writer.h>
#include <trireme/comm/world.h>
#include <trireme/faults/full_disk.h>
#include <trireme/train/saver.h>
#include <trireme/train/trainer.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// Keeps references to world and options. One thread. Unless options.checkpoint.dir is set, nothing
// is saved or found.
class RunCheckpoints {
 public:
  // checkpoint.keep_best compares by `measure`.
  RunCheckpoints(World& world, const TrainerOptions& options, const Measure& measure)
      : world_(world), options_(options), best_by_{measure.name, measure.higher_is_better} {}

  // COLLECTIVE. Opens the folder on rank 0, agrees on the parts of saves, and makes the saver.
  // `in_parts` says that parts of several ranks fit together. Rank 0 keeps the folder from one
  // generation to the next, so a save in progress continues while the job regroups.
  void bind(Group& group, RunFacts facts, bool in_parts);
  // Saves in progress continue, but wait no longer for the parts of workers that may be lost. With
  // units it waits for them and gives the folder back.
  void unbind();

  const checkpoint::BestBy& best_by() const { return best_by_; }
  bool wanted() const { return !options_.checkpoint.dir.empty(); }
  Saver& saver() { return *saver_; }
  bool has_slices() const { return saver_ && saver_->has_slices(); }
  // COLLECTIVE. Returns true if rank 0 has a checkpoint. It waits for one that is being written.
  bool exist();
  // COLLECTIVE. To be called before a save. Servers that write parts keep a copy of their state
  // until it is on the disk, and have memory for one: the saves of before must be done.
  void begin_save(bool servers_write);
  // COLLECTIVE. Waits until every rank's part of each save is on its disk.
  void wait_for_all();
  // The next write fails as on a full disk.
  void fill_disk() { disk_.fill(); }

 private:
  bool first() const { return group_->rank() == 0; }
  checkpoint::Folder open_folder();
  std::optional<PartsOfSaves> take_parts(bool of_all_ranks);
  checkpoint::WriterOptions writing();
  Saver::LetAllWrite let_all_write();
  int64_t lost_servers() const;

  World& world_;
  const TrainerOptions& options_;
  const checkpoint::BestBy best_by_;
  // It must come before the writers, which use it.
  FullDisk disk_;
  std::optional<checkpoint::Writer> writer_;       // Only rank 0 has it.
  std::optional<checkpoint::Writer> part_writer_;  // The other writers have it.
  Group* group_ = nullptr;                         // Null between generations.
  int64_t lost_ = 0;                               // lost_servers() when the last save began.
  std::optional<Saver> saver_;
};

}  // namespace trireme
