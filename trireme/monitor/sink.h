// The readers of a run's events (events.h) while it runs: progress, JSON lines, TensorBoard.
#pragma once
#include <trireme/monitor/events.h>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme::monitor {

// One thread of rank 0 calls these functions.
class Sink {
 public:
  virtual ~Sink() = default;
  // Takes an event of any kind. It calls the function of that kind below: those of saves and
  // guards are messages. A sink that treats all kinds alike overrides this one.
  virtual void take(const Event& event);

  virtual void on_start(const RunStart&) {}
  virtual void on_step(const StepRecord&) {}
  virtual void on_eval(const EvalRecord&) {}
  virtual void on_scalars(const ScalarRecord&) {}
  virtual void on_continue(const ContinueRecord&) {}
  virtual void on_commit(const CommitRecord&) {}
  virtual void on_message(const std::string&) {}  // "checkpoint saved: ..."
  virtual void on_end(const RunEnd&) {}
};

// A sink that treats all kinds of events alike.
class EventSink : public Sink {
 public:
  void take(const Event& event) override = 0;
  void on_start(const RunStart& start) final { take(start); }
  void on_step(const StepRecord& step) final { take(step); }
  void on_eval(const EvalRecord& eval) final { take(eval); }
  void on_scalars(const ScalarRecord& scalars) final { take(scalars); }
  void on_continue(const ContinueRecord& from) final { take(from); }
  void on_commit(const CommitRecord& commit) final { take(commit); }
  void on_message(const std::string& text) final { take(Message{text}); }
  void on_end(const RunEnd& end) final { take(end); }
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
// One JSON object a line: {"event": "step", "time": unix seconds, ...}. Numbers that JSON lacks
// are the strings "NaN", "Infinity" and "-Infinity". Each line is appended by one write; missing
// folders are created. Throws Error(io) if the file cannot be opened or written.
std::unique_ptr<Sink> make_json_lines(const std::filesystem::path& file);
// A TensorBoard event file with the scalars loss, learning_rate, samples_per_second, gradient_norm
// (train/), loss, accuracy and the programme's own metrics (eval/), and the programme's own
// values under the names that they have. A resumed run hides the values that an earlier run wrote
// into the same folder for later steps. Throws Error(io) as above.
std::unique_ptr<Sink> make_tensorboard(const std::filesystem::path& folder);
// A sink that passes each event to all of `sinks`, in order.
std::unique_ptr<Sink> make_fan_out(std::vector<std::unique_ptr<Sink>> sinks);
// The same, but the sinks are opened at the first event. Only rank 0 has events, and in an elastic
// job another process may become rank 0.
using OpenSinks = std::function<std::vector<std::unique_ptr<Sink>>()>;
std::unique_ptr<Sink> make_on_demand(OpenSinks open);

}  // namespace trireme::monitor
