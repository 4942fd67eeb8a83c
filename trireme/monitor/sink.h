// The events of a run while it runs, and the sinks that take them: progress, JSON lines,
// TensorBoard.
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
};
struct EvalRecord {
  int64_t step = 0, epoch = 0;  // The newest step and its epoch, counted as in StepRecord.
  double loss = 0, accuracy = 0;
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

// One thread of rank 0 calls these functions.
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

// With `terminal`, the sink draws a bar with epoch, step, loss, samples/s and time left. It
// redraws the bar in place, at most ten times a second and for the last step; evaluations and
// messages become lasting lines above it. Without `terminal`, it prints plain lines without
// control characters: about every `plain_interval_seconds`, at each epoch's end and for the last
// step. Both end with a summary of accuracy, speed, cost, and the places of the files. `out` is
// not closed and must outlive the sink; its errors are ignored. `now` is the clock (empty: the
// steady clock).
std::unique_ptr<Sink> make_progress(std::FILE* out, bool terminal,
                                    double plain_interval_seconds = 2.0, NowFunction now = {});
// A sink for a worker whose output is a pipe to the launcher. It encodes each event as one line
// that starts with kProgressMark. The launcher gives such lines to replay_progress(), which passes
// the events to the launcher's own sink and returns true. It returns false for other lines and for
// damaged ones.
inline constexpr const char* kProgressMark = "\x1etrireme ";
std::unique_ptr<Sink> make_progress_lines(std::FILE* out);
bool replay_progress(const std::string& line, Sink& sink);
// One JSON object a line: {"event": "step", "time": unix seconds, ...}. Numbers that JSON lacks
// are the strings "NaN", "Infinity" and "-Infinity". Each line is appended by one write; missing
// folders are created. Throws Error(io) if the file cannot be opened or written.
std::unique_ptr<Sink> make_json_lines(const std::filesystem::path& file);
// A TensorBoard event file with the scalars loss, learning_rate, samples_per_second, gradient_norm
// (train/), loss and accuracy (eval/). A resumed run hides the values that an earlier run wrote
// into the same folder for later steps. Throws Error(io) as above.
std::unique_ptr<Sink> make_tensorboard(const std::filesystem::path& folder);
// A sink that passes each event to all of `sinks`, in order.
std::unique_ptr<Sink> make_fan_out(std::vector<std::unique_ptr<Sink>> sinks);
// The same, but the sinks are opened at the first event. Only rank 0 has events, and in an elastic
// job another process may become rank 0.
using OpenSinks = std::function<std::vector<std::unique_ptr<Sink>>()>;
std::unique_ptr<Sink> make_on_demand(OpenSinks open);

}  // namespace trireme::monitor
