// The events of a run, one type for each kind. Every reader of a run reads these: progress, JSON
// lines, TensorBoard, the report, the launcher.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/data_plan.h>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace trireme::monitor {

struct RunStart {
  std::string name;  // "cnn on digits"
  std::string strategy;
  int workers = 1;
  int world_size = 1;
  int64_t total_steps = 0;  // The steps of the whole run, with those before a resume. 0: unknown.
  int64_t first_step = 0;   // 0, or the step at which the run was resumed.
  int64_t steps_per_epoch = 0;  // 0: unknown.
  int64_t parameters = 0;
};
struct StepRecord {
  int64_t step = 0;   // Counted from 1: so many steps are committed now.
  int64_t epoch = 0;  // Counted from 0.
  double loss = 0;    // The mean over the global batch.
  double learning_rate = 0;
  double gradient_norm = -1;  // Negative: not computed.
  int64_t samples = 0;        // The size of the global batch.
  double seconds = 0;         // The wall time of the step.
  // The work of this rank in exchanging the gradients, and the elements that it updated.
  int64_t operations = 0, bytes_sent = 0, updated_elements = 0;
  // Above 1: the record stands for so many steps of an epoch (merged()).
  int64_t steps = 1;
  double waited = 0;  // The seconds of the step in which this rank waited for its batch.
};
// The record of the steps of both, which follow each other in one epoch. Samples, seconds and the
// exchange are sums, and the loss is their mean, weighted by samples. The rest is the later one's.
StepRecord merged(const StepRecord& earlier, const StepRecord& later);
// A batch that was used and is no step. A guard or a message says why.
struct SkipRecord {
  int64_t step = 0;  // The number of steps committed so far.
  // As in StepRecord.
  int64_t samples = 0;
  double seconds = 0;
  int64_t operations = 0, bytes_sent = 0;
};
struct EvalRecord {
  int64_t step = 0, epoch = 0;  // The newest step and its epoch, counted as in StepRecord.
  double loss = 0, accuracy = 0;
  int64_t samples = 0;                         // 0: unknown.
  std::map<std::string, double> metrics = {};  // The programme's own, by name.
};
// Values of the programme's own after a step, by name, such as "critic/loss".
struct ScalarRecord {
  int64_t step = 0;  // The number of steps committed so far.
  std::map<std::string, double> values;
  bool operator==(const ScalarRecord&) const = default;
};
// The samples that a step used. Each batch that counts as used has one record, so that the ledger
// can be proved from the log.
struct CommitRecord {
  int64_t generation = 0;
  int64_t step = 0;             // A skipped batch has the step before it.
  plan::DataPosition position;  // The position of the batch's first sample.
  int64_t samples = 0;
  // The number of samples that each rank took, in the order of ranks.
  std::vector<int64_t> shares;
  // False: the batch was skipped. Its samples are used, but there was no step.
  bool updated = true;
  // The samples that the source left out: filtered, or damaged. They count as used.
  int64_t left_out = 0;
  bool operator==(const CommitRecord&) const = default;
};
// Training continues at this position: at the start, after a resume, after a regrouping, or after
// a roll-back. Earlier records of this position and of later ones do not count any more.
struct ContinueRecord {
  int64_t generation = 0;
  int64_t step = 0;             // The number of steps committed so far.
  plan::DataPosition position;  // The position of the next batch.
  plan::DataPlanOptions data;   // The plan of the batches from this position on.
  Json ledger;                  // The samples used before (train/ledger.h); null: unknown.
  // "resume" or "rollback" if the state was read from a checkpoint; empty: it was in memory, or
  // the run begins.
  std::string cause;
  std::string checkpoint;  // The path of that checkpoint, where this rank knows it.
};
struct RunEnd {
  bool stopped = false;  // The run was asked to stop before its end.
  // The report (docs/report.md). Sinks read strategy, workers, steps, epochs, train_loss, eval
  // {loss, accuracy}, samples_per_second, wall_seconds, cpu_seconds, peak_pss_bytes, cost (a
  // number), checkpoint (path), and files {report, events, log} (paths; events is a folder or a
  // file in it). Any of them may be missing. loss_history is never passed on, because each step
  // was already reported.
  Json report;
};
// A checkpoint is durable.
struct SaveRecord {
  std::string path;
  bool operator==(const SaveRecord&) const = default;
};
// A guard decided about a batch, or about replicas that differ (train/guards.h).
struct GuardRecord {
  int64_t step = 0;    // The number of steps committed so far.
  std::string action;  // skip: the batch is skipped. rollback: back to the newest checkpoint.
  std::string reason;
  bool operator==(const GuardRecord&) const = default;
};
// An injected fault strikes a rank (docs/faults.md). Every rank has these.
struct FaultRecord {
  int64_t step = 0;
  std::string fault;  // "slow:rank=0,forward=20ms"
  bool operator==(const FaultRecord&) const = default;
};
// The launcher's notice of a worker that was lost, hangs or is slow (docs/recovery.md). The record
// has "kind" and "text".
struct NoticeRecord {
  Json record;
};
// Any other sentence for people.
struct Message {
  std::string text;
};

using Event =
    std::variant<RunStart, StepRecord, EvalRecord, Message, RunEnd, ContinueRecord, CommitRecord,
                 SaveRecord, GuardRecord, FaultRecord, NoticeRecord, SkipRecord, ScalarRecord>;

// The sentence that people read of an event which is one, else an empty text:
// "checkpoint saved: ..."
std::string sentence_of(const Event& event);

// An event on its way from a worker: the rank that has it, and the time when it had it.
struct Told {
  int rank = -1;    // Negative: no rank. -1 is the launcher; side tasks have lower numbers.
  double time = 0;  // In Unix seconds.
  Event event;
};

}  // namespace trireme::monitor
