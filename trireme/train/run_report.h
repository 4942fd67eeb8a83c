// The report of one replica: it reads the events of its rank while the run goes on, and adds what
// the ranks know together at the end.
#pragma once
#include <trireme/comm/world.h>
#include <trireme/monitor/sink.h>
#include <trireme/train/course.h>
#include <trireme/train/evaluator_watch.h>
#include <trireme/train/generation.h>
#include <trireme/train/progress.h>
#include <trireme/train/replica_run.h>
#include <chrono>
#include <optional>
#include <string>

namespace trireme {

// One thread.
class RunReport : public monitor::EventSink {
 public:
  explicit RunReport(const ReplicaSetting& setting) : setting_(setting) {}

  void take(const monitor::Event& event) override;
  // The evaluation of this step, or empty.
  std::optional<Evaluation> evaluation_of(int64_t step) const;

  // COLLECTIVE. Completes the report. `generation_facts` belong to a job with one generation. A
  // run comes here again after a regrouping, if a worker was lost before all had finished.
  void complete(const Progress& progress, const RunLength& length, Generation& generation,
                const ReplicaModel& model, const Json& generation_facts);
  // COLLECTIVE. Adds the job's roles, why it stopped, and what rank 0 knows of the evaluator.
  void add_evaluator(Group& group, const EvaluatorWatch& evaluator, bool user_wants_stop,
                     bool stopped_early);
  const ReplicaResult& result() const { return result_; }

 private:
  // The parts of an event that count. The others are not for the report.
  void read(const monitor::StepRecord& step);
  void read(const monitor::SkipRecord& skip);
  void read(const monitor::EvalRecord& eval);
  void read(const monitor::SaveRecord& save) { result_.report.checkpoint = save.path; }
  void read(const monitor::ContinueRecord& from);
  template <typename Other>
  void read(const Other&) {}
  void count_batch(int64_t samples, double seconds, const Traffic& exchanged);

  void add_counts(const Progress& progress, const RunLength& length);
  void add_exchange();
  void add_memory(Group& group, const MemoryUse& own);
  void add_process_totals(Group& group);
  void add_input(Generation& generation);
  Json generations(const Group& group, const Json& facts);

  const ReplicaSetting setting_;
  const std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();
  ReplicaResult result_;
  double waited_ = 0;  // For data, in the steps of this process.
  Traffic exchanged_;  // In the steps of this process.
  double exchanges_ = 0;
  int64_t updated_elements_ = 0;  // In the last step that counted.
  int64_t evaluated_step_ = -1;   // The step of the report's evaluation.
};

}  // namespace trireme
