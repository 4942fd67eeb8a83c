// The report of one replica: what it counts while the run goes on, and what it adds at the end.
#pragma once
#include <trireme/comm/world.h>
#include <trireme/train/course.h>
#include <trireme/train/generation.h>
#include <trireme/train/progress.h>
#include <trireme/train/replica_run.h>
#include <chrono>
#include <optional>
#include <string>

namespace trireme {

// One thread.
class RunReport {
 public:
  explicit RunReport(const ReplicaSetting& setting) : setting_(setting) {}

  void begin_generation();
  // Counts a batch that was used. `seconds` is its wall time.
  void count(const Batch& batch, const StepOutcome& outcome, double seconds);
  void resumed_from(int64_t step) { result_.report.resumed_from_step = step; }
  // The newest checkpoint.
  void saved(const std::string& path) { result_.report.checkpoint = path; }
  void evaluated(int64_t step, const Evaluation& evaluation);
  // The steps of the newest evaluation were taken back.
  void forget_evaluation() { evaluated_step_ = -1; }
  // The evaluation of this step, or empty.
  std::optional<Evaluation> evaluation_of(int64_t step) const;

  // COLLECTIVE. Completes the report. `generation_facts` belong to a job with one generation. A
  // run comes here again after a regrouping, if a worker was lost before all had finished.
  void complete(const Progress& progress, const RunLength& length, Generation& generation,
                const ReplicaModel& model, const Json& generation_facts);
  const ReplicaResult& result() const { return result_; }

 private:
  void add_counts(const Progress& progress, const RunLength& length);
  void add_exchange();
  void add_process_totals(Group& group);
  Json generations(const Group& group, const Json& facts);

  const ReplicaSetting setting_;
  const std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();
  ReplicaResult result_;
  Traffic exchanged_;  // In the steps of this process.
  double exchanges_ = 0;
  int64_t updated_elements_ = 0;  // In the last step that counted.
  int64_t evaluated_step_ = -1;   // The step of the report's evaluation.
};

}  // namespace trireme
