// What a run says of itself while it runs, and who listens: progress, JSON lines, TensorBoard.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/data_plan.h>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme::monitor {

struct RunStart {
  std::string name;  // "cnn on digits"
  std::string strategy;
  int workers = 1;
  int world_size = 1;
  int64_t total_steps = 0;      // Of the whole run, those before a resume included; 0: unknown.
  int64_t first_step = 0;       // 0, or the step resumed from.
  int64_t steps_per_epoch = 0;  // 0: unknown.
  int64_t parameters = 0;
};
struct StepRecord {
  int64_t step = 0;   // Counted from 1: this many are now committed.
  int64_t epoch = 0;  // Counted from 0.
  double loss = 0;    // Global mean over the batch.
  double learning_rate = 0;
  double gradient_norm = -1;  // Negative: not computed.
  int64_t samples = 0;        // Of the global batch.
  double seconds = 0;         // Wall time of the step.
};
struct EvalRecord {
  int64_t step = 0, epoch = 0;  // As in StepRecord: the newest step, and the epoch it belongs to.
  double loss = 0, accuracy = 0;
};
// Which samples a step used: one record for every batch that counts as used, so that the ledger can
// be proved from the log.
struct CommitRecord {
  int64_t generation = 0;
  int64_t step = 0;             // As in StepRecord; of a skipped batch: the step before it.
  plan::DataPosition position;  // Of the batch's first sample.
  int64_t samples = 0;
  std::vector<int64_t> shares;  // How many of them each rank took, in the order of ranks.
  bool updated =
      true;  // False: the batch was skipped. Its samples are used, but there was no step.
  bool operator==(const CommitRecord&) const = default;
};
// Training goes on from here: at the start, after a resume, after a regrouping, after a roll-back.
// What was recorded of this position and later ones does not count any more.
struct ContinueRecord {
  int64_t generation = 0;
  int64_t step = 0;             // Committed so far.
  plan::DataPosition position;  // Of the next batch.
  plan::DataPlanOptions data;   // How batches are cut from here on.
  Json ledger;  // What is known of the samples before (train/ledger.h); null: nothing.
};
struct RunEnd {
  bool stopped = false;  // Asked to stop before its end.
  // The report (docs/report.md). Sinks read strategy, workers, steps, epochs, train_loss, eval
  // {loss, accuracy}, samples_per_second, wall_seconds, cpu_seconds, peak_pss_bytes, cost (a
  // number), checkpoint (path), and files {report, events, log} (paths; events is a folder or a
  // file in it). Any may be missing. loss_history is never passed on: each step was already told.
  Json report;
};

// Called by one thread of rank 0.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void on_start(const RunStart&) {}
  virtual void on_step(const StepRecord&) {}
  virtual void on_eval(const EvalRecord&) {}
  virtual void on_continue(const ContinueRecord&) {}
  virtual void on_commit(const CommitRecord&) {}
  virtual void on_message(const std::string&) {}  // "checkpoint saved: ..."
  virtual void on_end(const RunEnd&) {}
};

using NowFunction = std::function<std::chrono::steady_clock::time_point()>;

// Where `terminal`: a bar with epoch, step, loss, samples/s and time left, redrawn in place at most
// ten times a second (and for the last step), and evaluations and messages as lasting lines above
// it. Otherwise: plain lines without control characters, about every `plain_interval_seconds`, at
// each epoch's end and for the last step. Ends with a summary: accuracy, speed, cost, and where
// files are. `out` is not closed and must outlive the sink; its errors are ignored. `now` is the
// clock (empty: the steady clock).
std::unique_ptr<Sink> make_progress(std::FILE* out, bool terminal,
                                    double plain_interval_seconds = 2.0, NowFunction now = {});
// For a worker whose output is a pipe to the launcher: encodes each event as one line starting with
// kProgressMark; the launcher feeds such lines to replay_progress(), which passes them to its own
// sink and returns true (false: not such a line, or a damaged one).
inline constexpr const char* kProgressMark = "\x1etrireme ";
std::unique_ptr<Sink> make_progress_lines(std::FILE* out);
bool replay_progress(const std::string& line, Sink& sink);
// One JSON object a line: {"event": "step", "time": unix seconds, ...}; numbers that JSON lacks are
// the strings "NaN", "Infinity" and "-Infinity". Appends, one write a line; makes missing folders.
// Throws Error(io) if the file cannot be opened or written.
std::unique_ptr<Sink> make_json_lines(const std::filesystem::path& file);
// TensorBoard event file with scalars loss, learning_rate, samples_per_second, gradient_norm
// (train/), loss and accuracy (eval/). A resumed run hides what an earlier one wrote into the same
// folder after the step resumed from. Throws Error(io) as above.
std::unique_ptr<Sink> make_tensorboard(const std::filesystem::path& folder);
// All of `sinks` in order.
std::unique_ptr<Sink> make_fan_out(std::vector<std::unique_ptr<Sink>> sinks);
// The same, opened when there is something to hear: on rank 0, which in an elastic job may be
// another process later.
using OpenSinks = std::function<std::vector<std::unique_ptr<Sink>>()>;
std::unique_ptr<Sink> make_on_demand(OpenSinks open);

}  // namespace trireme::monitor
