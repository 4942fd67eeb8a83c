// The ledger: a record of the samples that a run has used. It proves that each sample of an epoch
// was used exactly once, also if processes failed or joined or the job was resized. No torch.
//
// Batches that follow each other as in the DataPlan form one entry of any length. An entry ends
// where the generation, the world size or the plan changes, or where batches do not follow each
// other. Therefore the ledger of an undisturbed training is one line of a checkpoint. Every rank
// keeps the ledger, because every rank knows the samples of a step. Therefore any rank can become
// rank 0 and continue it.
#pragma once
#include <trireme/base/json.h>
#include <trireme/monitor/sink.h>
#include <trireme/plan/data_plan.h>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// Counts uses of samples: a training of 3 epochs over 1,437 samples expects 4,311.
struct SampleCount {
  // All samples of each finished epoch, and those of the last epoch up to the position reached.
  int64_t expected = 0;
  int64_t seen_once = 0;  // Samples that exactly one step of their epoch used.
  int64_t lost = 0;       // Samples that no step used.
  int64_t repeated = 0;   // Samples that two or more steps used.
  bool exactly_once() const { return lost == 0 && repeated == 0 && seen_once == expected; }
  bool operator==(const SampleCount&) const = default;
  Json to_json() const;
};

// One thread at a time.
class Ledger {
 public:
  // Training continues from this record's position: entries at this position or later are taken
  // back. Called before the first commit. An empty ledger takes over the ledger in the record, if
  // there is one. Throws Error(corrupt) for a position outside the data.
  void go_on(const monitor::ContinueRecord& from);
  // Adds a batch that counts as used. Throws Error(corrupt) that names the value if no plan could
  // have made the record.
  void commit(const monitor::CommitRecord& commit);

  SampleCount samples() const;
  // Returns at most `most` sentences, each about one error. Empty exactly if
  // samples().exactly_once() and no step is missing.
  std::vector<std::string> errors(size_t most = 20) const;
  int64_t finished_epochs() const;
  bool empty() const { return runs_.empty(); }
  // The newest record that counts, for a process that takes over the log. Empty if that
  // record was taken back.
  const std::optional<monitor::CommitRecord>& newest() const { return newest_; }
  // The position at which the ledger begins, if it does not know the run from its start.
  plan::DataPosition begin() const { return begin_; }

  // The ledger as a small JSON value for a checkpoint's manifest. `where` names the source in
  // messages. Throws Error(corrupt) for a value that to_json() cannot have made.
  Json to_json() const;
  static Ledger from_json(const Json& json, const std::string& where);

 private:
  // Batches that follow each other.
  struct Run {
    size_t plan = 0;  // Index in plans_.
    int64_t generation = 0, world_size = 1;
    // The position of the first batch, and the position after the last.
    plan::DataPosition from, to;
    // The number of committed steps before the first batch, and after the last.
    int64_t step_before = 0, steps_to = 0;
  };
  struct Use;
  struct Stretch;
  struct Epoch;

  const plan::DataPlanOptions& data_of(const Run& run) const { return plans_[run.plan]; }
  int64_t last_epoch() const;
  std::vector<Use> uses_of(int64_t number) const;
  Epoch epoch(int64_t number) const;
  std::string steps_at(int64_t epoch, int64_t position) const;

  bool begun_ = false;
  plan::DataPosition begin_;
  std::vector<plan::DataPlanOptions> plans_;
  std::vector<Run> runs_;
  std::optional<monitor::CommitRecord> newest_;
};

}  // namespace trireme
