// What a run was and what it took. Scripts read its JSON: keys stay as they are.
#pragma once
#include <trireme/base/json.h>
#include <trireme/train/ledger.h>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

struct Evaluation {
  double loss = 0;      // Mean over the samples.
  double accuracy = 0;  // Fraction of targets that the largest logit names.
  int64_t samples = 0;
};

struct Report {
  int64_t steps = 0;   // Committed, those before a resume included.
  int64_t epochs = 0;  // Finished.
  int workers = 1;
  int world_size = 1;
  std::string strategy;
  std::vector<double> loss_history;  // Global mean loss of each step, from the very first.
  int64_t skipped_steps =
      0;                // Whose gradients overflowed under loss scaling, or that a guard skipped.
  SampleCount samples;  // What the ledger proves (ledger.h).
  std::string precision =
      "float32";  // What forward computes in, and what parameters are: "bf16 (parameters float32)".
  double loss_scale = 1;             // At the end.
  double learning_rate_scale = 1;    // By optimizer.scale_lr.
  std::string compression = "none";  // Of gradients.
  int64_t local_steps = 1;           // Between two averagings of parameters.
  double exchange_bytes_per_step =
      0;                  // What rank 0 sent to the others, mean over the steps of this process.
  double train_loss = 0;  // Mean over the last epoch's worth of steps.
  std::optional<Evaluation> eval;  // Of the end.
  double samples_per_second = 0;   // Training steps alone, all replicas.
  double wall_seconds = 0;
  double seconds_to_first_step =
      0;  // From the start of the command (or of this process) to the end of the first step.
  double cpu_seconds = 0;      // All processes.
  int64_t peak_pss_bytes = 0;  // Sum over processes.
  double cost = 0;
  std::string checkpoint;  // Path of the newest; empty if none was written.
  std::string parameters_sha256;
  int64_t parameters = 0;
  int64_t resumed_from_step = 0;
  bool stopped = false;  // Asked to stop before its end; state was saved.
  // Of an elastic job: {generation, world_size, first_step, cause, lost_ranks, phase,
  // seconds_to_first_step} each; else one.
  Json generations = Json::array();
  Json times = Json::object();  // {"phases": [...], "stragglers": [...]}: where the time of steps
                                // went, and who made the others wait.
  bool dismissed =
      false;  // This process's help was not wanted any more; the job goes on without it.
  Json files = Json::object();  // {"report": ..., "events": ..., "log": ...}

  Json to_json() const;
};

}  // namespace trireme
