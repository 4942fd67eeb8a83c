// Which samples a run has used: the ledger that proves that each sample of an epoch was used
// exactly once, whatever failed, joined or was resized on the way. No torch.
//
// A run of batches that follow each other as the DataPlan has it is one entry, however long it is;
// an entry ends where the generation, the world size or the plan changes, or where batches do not
// follow. So the ledger of an undisturbed training is one line of a checkpoint. Every rank keeps it
// (all know what a step used), so that whoever becomes rank 0 can go on with it.
#pragma once
#include <trireme/base/json.h>
#include <trireme/monitor/sink.h>
#include <trireme/plan/data_plan.h>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// In uses of samples: a training of 3 epochs over 1,437 samples expects 4,311.
struct SampleCount {
  int64_t expected = 0;   // All of each finished epoch, and of the last one what was reached.
  int64_t seen_once = 0;  // Used by exactly one step of their epoch.
  int64_t lost = 0;       // Used by none.
  int64_t repeated = 0;   // Used by two or more.
  bool exactly_once() const { return lost == 0 && repeated == 0 && seen_once == expected; }
  bool operator==(const SampleCount&) const = default;
  Json to_json() const;
};

// One thread at a time.
class Ledger {
 public:
  // Training goes on from here: what was recorded at this position or later is taken back. Before
  // the first commit. An empty ledger takes over the record's own, if it has one. Throws
  // Error(corrupt) for a position outside the data.
  void go_on(const monitor::ContinueRecord& from);
  // A batch that counts as used. Throws Error(corrupt) naming the value for a record that no plan
  // could have made.
  void commit(const monitor::CommitRecord& commit);

  SampleCount samples() const;
  // What is not as it should be, in words, at most so many; empty exactly if
  // samples().exactly_once() and no step is missing.
  std::vector<std::string> faults(size_t most = 20) const;
  int64_t finished_epochs() const;
  bool empty() const { return runs_.empty(); }
  // The newest record that counts, for who takes over the log; none if that was taken back.
  const std::optional<monitor::CommitRecord>& newest() const { return newest_; }
  // Where the ledger begins, if it does not know the run from its start.
  plan::DataPosition begin() const { return begin_; }

  // Small: for a checkpoint's manifest. `where` names the source in messages; throws Error(corrupt)
  // for what to_json() does not make.
  Json to_json() const;
  static Ledger from_json(const Json& json, const std::string& where);

 private:
  // Batches that follow each other.
  struct Run {
    size_t plan = 0;  // In plans_.
    int64_t generation = 0, world_size = 1;
    plan::DataPosition from, to;            // Of the first batch, and behind the last.
    int64_t step_before = 0, steps_to = 0;  // Committed before the first batch, and after the last.
  };
  struct Use;
  struct Stretch;
  struct Epoch;

  const plan::DataPlanOptions& data_of(const Run& run) const { return plans_[run.plan]; }
  int64_t last_epoch() const;
  Epoch epoch(int64_t number) const;
  std::string steps_at(int64_t epoch, int64_t position) const;

  bool begun_ = false;
  plan::DataPosition begin_;
  std::vector<plan::DataPlanOptions> plans_;
  std::vector<Run> runs_;
  std::optional<monitor::CommitRecord> newest_;
};

}  // namespace trireme
