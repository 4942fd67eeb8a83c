// The evaluator: a side task that evaluates each new checkpoint of a run while training goes on,
// whatever strategy writes them (docs/roles.md). Trainer::evaluate_checkpoints() runs it.
#pragma once
#include <trireme/checkpoint/kept_folder.h>
#include <trireme/comm/world.h>
#include <trireme/monitor/append_file.h>
#include <trireme/parallel/servers/tables/checkpoint_rows.h>
#include <trireme/train/evaluate.h>
#include <trireme/train/evaluation_curve.h>
#include <trireme/train/replica_model.h>
#include <trireme/train/trainer.h>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// One thread.
class Evaluator {
 public:
  // Reads the curve that an earlier process of this task wrote. The references must outlive this
  // object. Throws Error(io).
  Evaluator(World& world, const TrainerOptions& options, const Job& job, const Source& test,
            ReplicaModel& model, const std::filesystem::path& curve);

  // Evaluates the next checkpoint. `ending`: no more will come, and there is little time; of many
  // that wait only the newest counts. Returns false if none waits. A checkpoint that is removed
  // meanwhile is passed over, and a damaged one is told and passed over. Throws Error(io) if
  // something cannot be written, and Error(invalid_argument) for a checkpoint of another model.
  bool evaluate_next(bool ending);

 private:
  void read_curve();
  std::vector<FoundCheckpoint> present() const;
  // Empty if the checkpoint is damaged.
  std::optional<Evaluation> evaluation_of(const std::filesystem::path& taken);
  EvaluationReads reads() const;
  void read_model(const std::filesystem::path& taken);
  void write_down(const EvaluatedCheckpoint& evaluated);
  void tell(bool may_stop);

  World& world_;
  const TrainerOptions& options_;
  const Job& job_;
  const Source& test_;
  ReplicaModel& model_;
  StateView view_;
  std::optional<servers::CheckpointRows> rows_;  // If the model has tables on servers.
  const std::filesystem::path curve_path_;
  EvaluationCurve curve_;
  checkpoint::KeptFolder best_;
  std::optional<monitor::AppendFile> lines_;
  int64_t epoch_ = 0;  // Of the checkpoint that was read last.
  std::chrono::duration<double> last_took_{0};
};

}  // namespace trireme
