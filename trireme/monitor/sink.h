// What a run says of itself while it runs, and who listens: progress, JSON lines, TensorBoard.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <trireme/base/json.h>
#include <vector>

namespace trireme::monitor {

struct RunStart {
  std::string name;            // "cnn on digits"
  std::string strategy;
  int workers = 1;
  int world_size = 1;
  int64_t total_steps = 0;     // Of the whole run, those before a resume included.
  int64_t first_step = 0;      // 0, or the step resumed from.
  int64_t steps_per_epoch = 0;
  int64_t parameters = 0;
};
struct StepRecord {
  int64_t step = 0;            // Counted from 1: this many are now committed.
  int64_t epoch = 0;           // Counted from 0.
  double loss = 0;             // Global mean over the batch.
  double learning_rate = 0;
  double gradient_norm = -1;   // Negative: not computed.
  int64_t samples = 0;         // Of the global batch.
  double seconds = 0;          // Wall time of the step.
};
struct EvalRecord {
  int64_t step = 0, epoch = 0;
  double loss = 0, accuracy = 0;
};
struct RunEnd {
  bool stopped = false;        // Asked to stop before its end.
  Json report;                 // docs: the report's keys.
};

// Called by one thread of rank 0.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void on_start(const RunStart&) {}
  virtual void on_step(const StepRecord&) {}
  virtual void on_eval(const EvalRecord&) {}
  virtual void on_message(const std::string&) {}  // "checkpoint saved: ..."
  virtual void on_end(const RunEnd&) {}
};

// A progress bar with epoch, step, loss, samples/s and time left where `terminal`, else a plain line about every
// `plain_interval_seconds` and at each epoch's end. Ends with a summary: accuracy, speed, cost, and where files are.
std::unique_ptr<Sink> make_progress(std::FILE* out, bool terminal, double plain_interval_seconds = 2.0);
// For a worker whose output is a pipe to the launcher: encodes each event as one line starting with kProgressMark; the launcher feeds
// such lines to replay_progress(), which passes them to its own sink and returns true (false: not such a line).
inline constexpr const char* kProgressMark = "\x1etrireme ";
std::unique_ptr<Sink> make_progress_lines(std::FILE* out);
bool replay_progress(const std::string& line, Sink& sink);
// One JSON object a line: {"event": "step", "time": unix seconds, ...}. Appends. Throws Error(io) if it cannot be opened.
std::unique_ptr<Sink> make_json_lines(const std::filesystem::path& file);
// TensorBoard event file with scalars loss, learning_rate, samples_per_second, gradient_norm (train/), loss and accuracy (eval/).
std::unique_ptr<Sink> make_tensorboard(const std::filesystem::path& folder);
// All of `sinks` in order.
std::unique_ptr<Sink> make_fan_out(std::vector<std::unique_ptr<Sink>> sinks);

}  // namespace trireme::monitor
