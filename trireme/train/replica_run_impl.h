// The parts of a ReplicaRun, and the order in which they work. Included by its sources alone.
#pragma once
#include <c10/core/DeviceGuard.h>
#include <trireme/faults/injector.h>
#include <trireme/parallel/own_pace.h>
#include <trireme/train/course.h>
#include <trireme/train/evaluate.h>
#include <trireme/train/evaluator_watch.h>
#include <trireme/train/generation.h>
#include <trireme/train/left_out.h>
#include <trireme/train/listeners.h>
#include <trireme/train/neighbour_copies.h>
#include <trireme/train/replica_model.h>
#include <trireme/train/replica_run.h>
#include <trireme/train/replica_standing.h>
#include <trireme/train/run_checkpoints.h>
#include <trireme/train/run_report.h>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

struct ReplicaRun::Impl {
 public:
  explicit Impl(const ReplicaSetting& setting);

  End run(ReplicaGroups groups);
  void unbind();
  bool is_torn() const { return generation_ && generation_->is_torn(); }
  // A torn replica with copies of an earlier step goes back to these, or to a checkpoint.
  bool must_end() const { return is_torn() && copies_.empty(); }
  int64_t committed() const { return standing_.has_state() ? progress_.step : -1; }
  const ReplicaResult& result() const { return report_.result(); }
  std::map<std::string, std::string> facts_of_model() const { return facts_of(model_.tensors()); }

 private:
  // A batch that the engine has trained on.
  struct Pass {
    Batch batch;
    StepOutcome outcome;
    double rate = 0;  // The learning rate of the first group.
    double seconds = 0;
    double waited = 0;  // The seconds among them without data.
    // The source has left out every sample: there was no step.
    bool is_empty() const { return batch.global_used > 0 && batch.global_size == 0; }
  };

  // The checkpoint that the state was read from (monitor::ContinueRecord).
  struct FromCheckpoint {
    std::string cause, path;
  };

  // replica_run.cc: from one generation to the next.
  bool bind(ReplicaGroups groups);
  void enter_generation(const MeshRank& mesh);
  void make_engine();
  bool resume(bool goes_back = false);
  bool resize();
  void go_on(bool begins_to_tell);
  void roll_back(const std::string& reason);
  RunState keep();
  RunState present_state();
  static StateEntry held(StateEntry entry);
  EngineState whole_state();
  int64_t samples_of_epoch() const;
  RunFacts facts_for_checkpoints() const;
  FaultActions fault_actions();
  void announce_start();
  void finish();

  // replica_round.cc: a round, in which each rank computes whole batches at its own pace.
  void round();
  std::vector<plan::DataPosition> positions_of_round();
  Batch load_for_round(plan::DataPosition position, int64_t number);
  void count(const CountedPass& pass, plan::DataPosition position, bool was_announced);
  void keep_for_next_rank_0(const monitor::Event& record);
  void take_back_round();

  // replica_pass.cc: one pass over a global batch, and what is due after it.
  void pass();
  Pass train_on_next_batch();
  GuardVerdict judge(const Pass& pass);
  void commit(const Pass& pass);
  void record(const Pass& pass);
  void announce(const Pass& pass, const std::string& guarded);
  monitor::StepRecord step_record_of(const Pass& pass) const;
  monitor::SkipRecord skip_record_of(const Pass& pass) const;
  bool replicas_differed();
  void after_pass(const Pass& pass);
  EvaluationReads evaluation_reads();
  void evaluate_now(int64_t epoch);
  void save();
  void save_at_the_end();
  void save_slices();
  void announce_saved();
  void announce_tuning();
  bool keeps_copies() const;
  void begin_copies();
  void finish_copies();
  void keep_copies(const Pass& pass);

  bool is_done() const { return course_->length().is_done(progress_); }
  bool is_over() const { return is_done() || progress_.stopping; }
  Group& group() const { return generation_->group(); }
  Engine& engine() const { return generation_->engine(); }
  bool user_wants_stop() const;
  Json facts_of_generation() const;
  void phase(Phase phase, int64_t step) {
    if (setting_.leads_worker) world_.set_phase(phase, step);
  }
  // Announces a phase between steps. It belongs to the last committed step.
  void phase(Phase now) { phase(now, progress_.step); }
  // Announces a phase of the step under way. Steps count from 1.
  void step_phase(Phase now) {
    phase(now, progress_.step + 1);
    strike(now, progress_.step + 1);
  }
  // Applies injected faults that are due here.
  void strike(Phase now, int64_t step) {
    if (injector_) injector_->at(group().rank(), now, step);
  }

  const ReplicaSetting setting_;
  // A device without a number, such as `cuda`, means this one on the replica's thread.
  const c10::OptionalDeviceGuard current_{setting_.device.is_cpu() ? std::optional<at::Device>()
                                                                   : setting_.device};
  World& world_;
  const TrainerOptions& options_;
  const Strategy strategy_;
  // These live for the whole run.
  ReplicaStanding standing_;
  Progress progress_;
  Guard guard_{options_.guard};
  Resize resize_{options_.resize, options_.batch};
  EarlyStop early_stop_{options_.early_stop,
                        measure_of(setting_.job.metrics, options_.early_stop.measure)};
  RunCheckpoints checkpoints_{world_, options_,
                              measure_of(setting_.job.metrics, options_.checkpoint.measure)};
  RunReport report_;  // It measures the time from its start, to which the model belongs.
  ReplicaModel model_;
  Listeners listeners_;
  EvaluatorWatch evaluator_{world_};  // Rank 0 watches.
  EmptyBatches empty_batches_;
  // The blocks of the model, as an engine has measured them.
  const std::shared_ptr<plan::MeasuredChain> measured_ = std::make_shared<plan::MeasuredChain>();
  std::optional<Course> course_;      // Exists from the first generation on.
  std::optional<Injector> injector_;  // Exists if faults are injected.
  // These live for a generation, or for the whole run if the job is not elastic.
  std::optional<Generation> generation_;
  std::optional<RunState> kept_;                    // Exists between two generations.
  std::optional<data::LoaderSetting> told_tuning_;  // The setting that listeners know.
  std::optional<data::LoaderSetting> tuned_;  // The setting that an earlier loader has found.
  NeighbourCopies copies_;                    // The messages under way are of one generation.
  int last_generation_ = -1;                  // The last one that this replica came to.
  std::optional<std::vector<int>> place_;     // In a replica of the model that is divided.
  bool has_moved_ = false;  // It came to another place, and has not got a state there yet.
  std::optional<FromCheckpoint> from_checkpoint_;  // Until go_on() tells of it.
  std::optional<Progress> before_round_;           // In a round: the progress at its start.
  // The batches of the newest round that this rank has announced, if the round was taken back.
  struct AnnouncedRound {
    int64_t id = -1, batches = 0;
  };
  AnnouncedRound announced_;
  std::deque<monitor::Event> of_round_;  // The newest records of batches that the round counted.
  bool took_over_ = false;     // This rank is rank 0 for the first time in this generation.
  int64_t newest_lease_ = -1;  // The number of the batch that this rank got last in a round.
  std::chrono::steady_clock::time_point counted_at_;  // The newest batch of a round.
};

}  // namespace trireme
