// Rank 0's knowledge of the job's evaluator (evaluator.h).
#pragma once
#include <trireme/base/json.h>
#include <trireme/comm/world.h>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace trireme {

// The key of the job under which an evaluator tells what it has found: the JSON of
// EvaluationCurve::summary(), with "stop", a text, once the run is to end.
inline constexpr const char* kEvaluatorKey = "what the evaluator found";

// Asks the coordinator on a thread of its own, so that no step waits for the answer. Keeps a
// reference to the world.
class EvaluatorWatch {
 public:
  explicit EvaluatorWatch(World& world) : world_(world) {}
  ~EvaluatorWatch() { end(); }
  EvaluatorWatch(const EvaluatorWatch&) = delete;
  EvaluatorWatch& operator=(const EvaluatorWatch&) = delete;

  // Begins to ask, if the job has the role. What was found before stays known.
  void begin();
  // Asks at once, for a report.
  void ask();
  // Called before the world leaves the generation.
  void end();
  bool wants_stop() const { return wants_stop_; }  // Any thread.
  // Whether the job has an evaluator, or had one since begin() that nobody had listed.
  bool has_evaluator() const { return is_there_; }
  Json found() const;  // Null before the first evaluation is known. Any thread.

 private:
  void watch();
  bool look();

  World& world_;
  std::atomic<bool> wants_stop_{false}, is_there_{false};
  mutable std::mutex mutex_;
  std::condition_variable ends_;
  bool ending_ = false;  // Of the thread.
  Json found_;
  std::thread thread_;
};

}  // namespace trireme
