// The seam of every strategy. An engine trains one rank's part of a model: its step() does
// forward, backward, exchange and update in an order of its own. The training loop, checkpoints,
// guards and averages know only this interface and the StateView.
//
// An engine lives as long as a generation of the job. For the next generation the Trainer makes a
// new engine on the same model, with the new groups, and moves the state of the old one into it; a
// run that resumes does the same with the state of a checkpoint. So a strategy that shows its
// whole state survives lost ranks and stops without further code.
//
// A strategy of your own: derive from Engine, or from ReplicaEngine (replica_engine.h) if every
// rank has the whole model; call register_strategy() before the Trainer is made, on every rank;
// give the name as strategy. examples/own_strategy shows it.
#pragma once
#include <trireme/comm/mesh_rank.h>
#include <trireme/data/batch.h>
#include <trireme/parallel/data_parallel_options.h>
#include <trireme/parallel/memory_options.h>
#include <trireme/parallel/model.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/parallel/state_view.h>
#include <trireme/parallel/step_outcome.h>
#include <trireme/plan/division.h>
#include <trireme/plan/engine_plan.h>
#include <trireme/plan/pipeline_memory.h>
#include <trireme/plan/strategy_features.h>
#include <trireme/plan/tensor_spec.h>
#include <trireme/watch/phase.h>
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace trireme {

class ReplicaRandom;
class ModelTables;
class OwnPace;
struct ServerAccess;

// A function of a model's output and of the batch that it belongs to. It is made of a function of
// (output, target), or of (output, batch) if it needs other tensors of the batch.
template <typename Result>
class OfBatch {
 public:
  OfBatch() = default;
  template <std::invocable<const at::Tensor&, const at::Tensor&> Call>
  OfBatch(Call call) {
    if constexpr (requires { call == nullptr; })
      if (call == nullptr) return;
    run_ = [call = std::move(call)](const at::Tensor& output, const Batch& batch) mutable {
      return call(output, batch.target);
    };
  }
  template <typename Call>
    requires(!std::invocable<Call, const at::Tensor&, const at::Tensor&> &&
             std::invocable<Call, const at::Tensor&, const Batch&>)
  OfBatch(Call call) : run_(std::move(call)) {}

  Result operator()(const at::Tensor& output, const Batch& batch) const {
    return run_(output, batch);
  }
  explicit operator bool() const { return run_ != nullptr; }

 private:
  std::function<Result(const at::Tensor& output, const Batch& batch)> run_;
};

using LossFunction = OfBatch<at::Tensor>;  // Returns the mean loss over the batch.

// A rank asks the others for this after a step.
struct Wishes {
  bool stop = false;     // The job ends.
  bool regroup = false;  // The job goes on with other ranks.
};

// The part of each global batch that a rank computes: share `index` of `count`. Ranks that compute
// one share together (stages of a pipeline) have the same index.
struct DataShare {
  int index = 0, count = 1;
};

// Everything that an engine is made of. The groups belong to the engine alone.
struct EngineSetting {
  std::string strategy;          // The name by which the strategy was chosen.
  std::shared_ptr<Group> group;  // All ranks.
  // All ranks again, for the batch norms over all replicas in forward and backward. Null unless
  // they are wanted.
  std::shared_ptr<Group> norm_group;
  // The place of this rank in the mesh of EngineNeeds, with the groups along its axes.
  MeshRank mesh;
  Model model;  // In training mode. The same initial values on every rank.
  // Gives the named parameters and buffers of the model memory and their initial values, and takes
  // it from all others: they keep their forms (tensor/hollow.h). A tensor that has memory keeps
  // its values. Null if the strategy does not divide the model: then all tensors have memory.
  std::function<void(const std::set<std::string>& names)> keep_only;
  // The samples that the first pass of a share computes, for an engine that tries the model before
  // it divides it. Not COLLECTIVE. Null if there are none.
  std::function<Batch(const DataShare& share)> sample;
  // The blocks as an engine of this run has measured them, for the next one. May be null.
  std::shared_ptr<plan::MeasuredChain> measured;
  OptimizerFactory optimizer;
  LossFunction loss;
  DataParallelOptions options;
  plan::DivisionOptions division;  // The parts of the model and its state.
  MemoryOptions memory;            // See StrategyFeatures::memory.
  // The parameter servers of the job. Null unless StrategyFeatures::servers.
  std::shared_ptr<const ServerAccess> servers;
  // The embedding tables of the model that live on them; null: none.
  std::shared_ptr<ModelTables> tables;
  std::optional<at::ScalarType> autocast;  // Forward and loss run under it.
  uint64_t seed = 0;
  ReplicaRandom* random = nullptr;  // Seeded anew before each step; outlives the engine.
  // Call it when a phase of the step begins: forward, backward, exchange. Reports, verdicts and
  // injected faults are told by it.
  std::function<void(Phase)> enter = [](Phase) {};
  // Ask for it as late as possible in a step, and tell the other ranks.
  std::function<Wishes()> wishes = [] { return Wishes(); };
};

struct StepRequest {
  const Batch& batch;  // The share of Engine::data_share().
  int64_t number = 1;  // Steps count from 1.
  int passes = 1;      // Micro-batches: the share is computed in this number of parts.
};

// The state that comes to a new engine, apart from the values of its tensors.
struct IncomingState {
  Json counters = Json::object();  // See EngineState.
  // Everything that was saved besides the model, by names in a file; without tensors of the model.
  std::vector<plan::TensorSpec> tensors;
  // Rank 0's parameters and buffers have been read from a checkpoint just now. Otherwise they are
  // those with which the engine was made.
  bool model_is_new = false;
  std::string path = {};  // On rank 0: that checkpoint. Empty: there is none.
};

// The memory that this rank's part of the model took so far. 0: not known.
struct MemoryUse {
  // The largest number of bytes of activations that were held at once, and the number that the
  // plan of the memory predicts.
  int64_t activation_bytes = 0, predicted_activation_bytes = 0;
  int64_t parameter_bytes = 0;
  // The predicted time of forward and backward, of that without a plan; 0 where none is predicted.
  double predicted_slowdown = 0;
};

// The part of the state that a rank has. All ranks with one index of one count have the same
// tensors and slices, and the state is whole where all indices are there.
struct StatePart {
  int index = 0, count = 0;  // A count of 0: each rank has a part of its own, or all of it.
};

// Used by one thread. begin_load() may come again with an older state, if the newest turns out to
// be damaged. After an error no further step is made. Unless is_torn(), the parameters and state()
// are then those before the step that failed, and the next generation continues from them.
class Engine {
 public:
  virtual ~Engine() = default;

  // COLLECTIVE. Trains on one global batch. The outcome is the same on all ranks; exchange
  // counters are this rank's. Unless StepOutcome::updated, the step has changed no parameter and
  // no other state: so it must be if the loss of some rank is not finite.
  virtual StepOutcome step(const StepRequest& request) = 0;
  // The output of the model for evaluation. The ranks of one data_share() call it together, with
  // the same data; one of them returns the output, the others an undefined tensor.
  virtual at::Tensor evaluate(const Batch& batch) = 0;
  // Instead of evaluate(), when ranks with another share have a batch and this rank has none left.
  // All ranks make equally many of these calls.
  virtual void evaluate_without_samples() {}
  virtual DataShare data_share() const = 0;

  // COLLECTIVE. Makes parameters and buffers those that are evaluated and saved: what steps keep
  // apart between ranks is brought together.
  virtual void prepare_to_read() = 0;
  // COLLECTIVE. The same for parameters and buffers alone, which is all that an evaluation reads.
  virtual void prepare_to_evaluate() { prepare_to_read(); }
  // COLLECTIVE. Throws Error(invalid_argument) on every rank if code outside the engine has
  // changed parameters in a way that step() would refuse.
  virtual void check_parameters() {}

  // The tensors are the engine's own, not copies. All ranks have the same entries, but for their
  // slices, in the same order.
  virtual EngineState state() = 0;
  // While an elastic job goes on from memory, a part is taken from any rank that has it.
  virtual StatePart state_part() const { return {}; }
  // State moves into a new engine in three steps. begin_load() takes the counters, makes all
  // ranks' models rank 0's, and makes the tensors for what was saved, so that state() lists them;
  // torch's optimizers have none before their first step. Then the caller fills the tensors of
  // state() on every rank, except those of the model. end_load() puts them to use. Both
  // COLLECTIVE. Throws Error(invalid_argument) on every rank if the state does not fit.
  virtual void begin_load(const IncomingState& incoming) = 0;
  virtual void end_load() = 0;

  // The learning rates of the optimizer's groups.
  virtual std::vector<double> rates() const = 0;
  virtual void set_rates(std::span<const double> rates) = 0;

  // The plan with which the engine began; the same on every rank.
  virtual const plan::EnginePlan& plan() const = 0;
  virtual double loss_scale() const { return 1; }
  // COLLECTIVE. More members for the report (train/report.h), the same on every rank: "mesh",
  // "bubble", "parameter_server".
  virtual Json facts_for_report() { return Json::object(); }
  virtual MemoryUse memory_use() const { return {}; }
  // Not null if the ranks compute batches at their own pace, instead of steps together
  // (own_pace.h). Then step() is not called.
  virtual OwnPace* own_pace() { return nullptr; }
  // True if all ranks of a host work on one copy of the parameters.
  virtual bool shares_parameters() const { return false; }
  // True after an error if the state may belong to no step at all. No rank continues from it.
  virtual bool is_torn() const { return false; }
};

using plan::StrategyFeatures;

// The needs of an engine. The Trainer meets them,
// or says before the first step why it cannot.
struct EngineNeeds {
  // The grid of the ranks, such as {{"data", 2}, {"stage", 4}}. Its axes multiply to `ranks`.
  // Empty: the engine needs only the group of all ranks.
  std::optional<plan::Mesh> mesh = {};
  bool blocks = false;  // Model::blocks, where the model can be cut.
};

struct Strategy {
  std::function<std::unique_ptr<Engine>(const EngineSetting&)> make;  // COLLECTIVE.
  StrategyFeatures features;
  // The needs of an engine of so many ranks, the same on each of them. It throws
  // Error(invalid_argument) if the strategy does not fit that number. Empty: no needs.
  std::function<EngineNeeds(const plan::DivisionOptions& division, int ranks)> needs = {};

  bool operator!() const { return !make; }
};

// The function that makes engines of a class with a constructor that takes the setting.
template <typename Kind>
std::unique_ptr<Engine> make_engine(const EngineSetting& setting) {
  return std::make_unique<Kind>(setting);
}

// Adds a strategy under a name. Call it before a Trainer is made, on every rank. Throws
// Error(invalid_argument) if the name is taken.
void register_strategy(const std::string& name, Strategy strategy);
std::vector<std::string> strategy_names();  // In order.
// Throws Error(invalid_argument) that lists the known names.
Strategy find_strategy(const std::string& name);

}  // namespace trireme
