// The listeners of a run: the sinks, which hear of it on rank 0, the launcher, which hears of
// all ranks, and the report and the callbacks of every rank.
#pragma once
#include <trireme/monitor/sink.h>
#include <trireme/train/callback.h>
#include <trireme/train/trainer.h>
#include <functional>
#include <optional>
#include <string>

namespace trireme {

// Keeps references to the options and to `own`. One thread.
class Listeners {
 public:
  // `own` hears every event of this rank. `forward` takes the events that go to the launcher; it
  // must not wait.
  Listeners(const TrainerOptions& options, monitor::Sink& own,
            std::function<void(monitor::Told)> forward)
      : options_(options), own_(own), forward_(std::move(forward)) {}

  // A generation begins. A callback's wish to stop stays.
  void bind(int rank, int world_size, torch::nn::Module& module);
  bool want_stop() const { return context_->stop; }

  // Returns true once, on a process that is rank 0 for the first time: its sinks must learn of the
  // start. In an elastic job another process may be rank 0 later.
  bool begin_to_tell();
  bool have_begun() const { return telling_; }
  // Tells this rank's own sink, the sinks on rank 0, and the launcher.
  void tell(const monitor::Event& event);
  // Tells an event again, which an earlier rank 0 may not have told: only the sinks of rank 0.
  void tell_again(const monitor::Event& event) { tell_sinks(event); }

  // Each of these two calls the callbacks once in a run. Returns true if it did.
  bool fit_starts();
  bool fit_ends();
  // These tell sinks and callbacks.
  void stepped(const monitor::StepRecord& record);
  void evaluated(const monitor::EvalRecord& record);
  void saved(const std::string& path);
  void epoch_ended(int64_t epoch);

 private:
  enum class Called { nothing, start, end };

  void tell_sinks(const monitor::Event& event);
  template <typename Action>
  void call(Action action) {
    for (const auto& callback : options_.callbacks) action(*callback);
  }

  const TrainerOptions& options_;
  monitor::Sink& own_;
  const std::function<void(monitor::Told)> forward_;
  std::optional<TrainContext> context_;  // Exists from the first generation on.
  Called called_ = Called::nothing;
  bool telling_ = false;
};

}  // namespace trireme
