// A model of a training loop of one's own with its optimizer, as a Checkpoint sees it: one that a
// Distributed trains, or a DataParallel.
#pragma once
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/engine.h>
#include <trireme/parallel/optimizer_view.h>
#include <map>
#include <string>
#include <vector>

namespace trireme {

struct LoopModel {
  std::string name;  // The names of its tensors begin with it; empty: it is the first model.
  DataParallel* replica = nullptr;
  torch::optim::Optimizer& optimizer;
  ModuleState state;
  OptimizerView view;

  LoopModel(std::string the_name, torch::nn::Module& module,
            torch::optim::Optimizer& the_optimizer);
  LoopModel(std::string the_name, DataParallel& the_replica);
  StateView tensors() const;  // Without the optimizer's.
  // Its name in a message.
  std::string shown() const { return name.empty() ? "the model" : "'" + name + "'"; }

  // COLLECTIVE. The next members are those of an Engine. A checkpoint has the learning rates and
  // the optimizer's counters of each model.
  void prepare_to_read(Group& group);
  void show(EngineState& all) const;
  void begin_load(const std::vector<double>& rates, const Json& optimizer_counters,
                  const IncomingState& incoming, Group& group);
  void end_load();
  // What a DataParallel counts; null without one.
  Json counters() const;
  void load_counters(const Json& counters);

  // Copies the state into memory.
  void keep();
  // COLLECTIVE. All ranks take the state that rank 0 has kept. With `has_own` this rank has kept
  // the state of the same step, and takes what belongs to it alone from there.
  void go_on_from_kept(Group& group, bool has_own);
  // The loop has committed a step. Throws Error(invalid_argument) if it has not added the groups
  // of parameters that the checkpoint has.
  void look_at_awaited_groups();

 private:
  // The groups of parameters when a checkpoint was loaded, and the learning rates that it has;
  // none: the loop has committed since.
  size_t loaded_groups_ = 0;
  std::vector<double> saved_rates_;
  std::map<std::string, at::Tensor> kept_;  // By names in a file.
  OptimizerState kept_optimizer_;

  // Gives the tensors of which `which` says so the values that were kept.
  void put_back(bool (*which)(StateKind kind)) const;
  std::string named(const std::string& tensor) const;
  std::vector<NamedTensor> named(std::vector<NamedTensor> tensors) const;
  ModuleState named(ModuleState own) const;
  std::vector<NamedTensor> updated() const;
  bool has(const std::string& parameter) const;
  void look_at_groups(const std::vector<double>& saved, bool has_state);
  [[noreturn]] void refuse_groups(size_t saved) const;
};

}  // namespace trireme
