// The decisions of an evaluator: which checkpoint comes next, which is the best, when the run is
// to stop. Pure; no torch.
#pragma once
#include <trireme/base/json.h>
#include <trireme/config/rows.h>
#include <trireme/monitor/events.h>
#include <trireme/train/measure.h>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

struct EvaluatorOptions {
  // The evaluations in a row without an improvement after which the run stops; 0: it does not.
  int64_t patience = 0;
  // An improvement is larger than this.
  double minimum_change = 0;
  std::string measure = "loss";  // The name of a Measure.
};
config::Rows rows_of(const EvaluatorOptions*);

// The folder in checkpoint.dir that has the best checkpoint.
std::filesystem::path best_dir(const std::filesystem::path& checkpoint_dir);

// A checkpoint as its folder shows it.
struct FoundCheckpoint {
  int64_t step = 0;
  // The Unix time of its manifest, in nanoseconds. Another checkpoint of the same step has another
  // one, and a hard link has the same.
  int64_t written = 0;
  bool operator==(const FoundCheckpoint&) const = default;
};

struct EvaluatedCheckpoint {
  FoundCheckpoint checkpoint;
  monitor::EvalRecord found;
};

// One thread.
class EvaluationCurve {
 public:
  explicit EvaluationCurve(EvaluatorOptions options)
      : EvaluationCurve(options, shipped_measure(options.measure)) {}
  EvaluationCurve(EvaluatorOptions options, Measure measure)
      : options_(std::move(options)), measure_(std::move(measure)) {}

  // The evaluation of another checkpoint of this step no longer counts.
  void add(const EvaluatedCheckpoint& evaluated);
  // A checkpoint that is damaged or gone. It is not evaluated.
  void skip(const FoundCheckpoint& checkpoint);

  // The oldest checkpoint that is to be evaluated: one that is newer than all that were, or that
  // took the place of one. Older ones that nobody evaluated stay so.
  std::optional<FoundCheckpoint> next(const std::vector<FoundCheckpoint>& present) const;
  // The best one, and the oldest of equal ones. Null before the first finite value.
  const EvaluatedCheckpoint* best() const;
  // Evaluations since the last improvement by more than minimum_change, in the order of steps.
  int64_t without_improvement() const;
  bool wants_stop() const {
    return options_.patience > 0 && without_improvement() >= options_.patience;
  }

  // {"evaluations", "newest_step", "best_step", "best_loss", "best_accuracy"}; the last three are
  // null without a best one.
  Json summary() const;
  // One line of evaluator.jsonl, and its way back; empty if it is none.
  static std::string line_of(const EvaluatedCheckpoint& evaluated, double unix_seconds);
  static std::optional<EvaluatedCheckpoint> read(const std::string& line);

 private:
  bool has_value(const monitor::EvalRecord& found) const;

  const EvaluatorOptions options_;
  const Measure measure_;
  std::map<int64_t, EvaluatedCheckpoint> by_step_;
  std::map<int64_t, int64_t> skipped_;  // Step -> FoundCheckpoint::written.
};

}  // namespace trireme
