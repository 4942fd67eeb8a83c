// The report: what a run was, and what it cost. Scripts read its JSON, so keys must not change.
#pragma once
#include <trireme/base/json.h>
#include <trireme/train/ledger.h>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// JSON has no NaN, so null stands for it.
inline Json finite_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

struct Evaluation {
  double loss = 0;      // Mean over the samples.
  double accuracy = 0;  // The fraction of samples whose largest logit is the target.
  int64_t samples = 0;
  std::map<std::string, double> metrics = {};  // Those of Job::metrics, by name.
};

// Report::stop_reason.
inline const std::string kStoppedOnRequest = "request", kStoppedByEvaluator = "evaluator",
                         kStoppedEarly = "early_stop";

struct Report {
  int64_t steps = 0;   // Committed steps, also those before a resume.
  int64_t epochs = 0;  // Finished epochs.
  int workers = 1;
  int world_size = 1;
  std::string strategy;
  std::vector<double> loss_history;  // Global mean loss of each step since step 1.
  // Batches whose gradients overflowed under loss scaling, or that a guard skipped.
  int64_t skipped_steps = 0;
  SampleCount samples;  // The counts that the ledger proves (ledger.h).
  // The type in which forward computes, and that of the parameters: "bf16 (parameters float32)".
  std::string precision = "float32";
  double loss_scale = 1;             // The scale at the end.
  double learning_rate_scale = 1;    // The factor from optimizer.scale_lr.
  std::string compression = "none";  // The compression of gradients.
  int64_t local_steps = 1;           // The steps between two averagings of parameters.
  // The digest of the plan with which the last engine began (plan/engine_plan.h).
  std::string plan_digest;
  // That of the input (run/input_plan.h); empty for a Trainer without a configuration.
  std::string input_plan_digest;
  // The operations between ranks in which rank 0 took part, and the bytes that it sent in them, as
  // means over the steps of this process.
  double exchange_operations_per_step = 0;
  double exchange_bytes_per_step = 0;
  // [rank]: the elements of parameters that it updated in its last step; 0 before the first step
  // of a generation.
  std::vector<int64_t> updated_elements;
  Json mesh, bubble;            // Null, or those of Engine::facts_for_report().
  Json roles = Json::object();  // [role]: the number of its tasks.
  Json parameter_server;        // Null without servers; see docs/report.md.
  Json evaluator;  // Null without an evaluator, or before its first evaluation is known.
  // [rank]: the largest number of bytes of activations that it held at once, what the plan of the
  // memory predicted (0: there is no plan), and the bytes of its parameters. 0: not known.
  std::vector<int64_t> activation_bytes, predicted_activation_bytes, parameter_bytes;
  double train_loss = 0;           // Mean over the last steps, as many as an epoch has.
  std::optional<Evaluation> eval;  // The evaluation at the end.
  double samples_per_second = 0;   // Speed of training steps alone, for all replicas together.
  double wall_seconds = 0;
  // The time from the start of the command (or of this process) to the end of the first step.
  double seconds_to_first_step = 0;
  double cpu_seconds = 0;      // The sum over all processes.
  int64_t peak_pss_bytes = 0;  // The sum over all processes.
  double cost = 0;
  std::string checkpoint;  // The path of the newest one; empty if none was written.
  std::string parameters_sha256;
  int64_t parameters = 0;
  int64_t resumed_from_step = 0;
  bool stopped = false;     // The run was asked to stop before its end, and saved its state.
  std::string stop_reason;  // Of a run that was stopped: one of those above.
  // {generation, world_size, first_step, cause, lost_ranks, phase, seconds_to_first_step} for each
  // generation of an elastic job. Other jobs have one.
  Json generations = Json::array();
  // {"phases": [...], "stragglers": [...]}: the time of each phase of the steps, and the ranks
  // that made the others wait.
  Json times = Json::object();
  Json input;  // How the data came (input_report.h).
  // The job no longer needs this process and continues without it.
  bool dismissed = false;
  Json files = Json::object();  // {"report": ..., "events": ..., "log": ...}

  Json to_json() const;
};

}  // namespace trireme
