// The model of one replica, and what a run keeps beside it: averages of its parameters, and copies
// that bring back the state before a step or before a generation.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/state_view.h>
#include <trireme/tensor/deferred_model.h>
#include <trireme/tensor/parameter_average.h>
#include <trireme/tensor/replica_random.h>
#include <trireme/train/trainer.h>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// Used only by the thread that makes it.
class ReplicaModel {
 public:
  ReplicaModel(const ReplicaModel&) = delete;
  ReplicaModel& operator=(const ReplicaModel&) = delete;
  // Makes the model. The initial weights are the same on every replica and under every strategy:
  // they are drawn from the seed alone and then converted.
  // With `in_parts` its tensors have no memory before keep_only(). It is made on the CPU, and then
  // moved to `device`.
  ReplicaModel(const Job& job, const TrainerOptions& options, bool in_parts,
               at::Device device = at::kCPU);

  const Model& model() const { return model_; }
  const ModuleState& tensors() const { return tensors_; }
  ReplicaRandom& random() { return random_; }
  bool is_in_parts() const { return deferred_ != nullptr; }
  // See EngineSetting::keep_only.
  void keep_only(const std::set<std::string>& names);
  int64_t parameters() const { return elements_; }  // The number of elements of the whole model.
  // Gradients may come from a step that was abandoned.
  void drop_gradients();

  // Averages of the trained parameters in an engine's state, of those slices that this rank has.
  // They begin as the parameters are now, or keep their values if the slices are those of before.
  void begin_averages(double decay, const StateView& state);
  // Averages that were not found become the parameters, as at the start of training.
  void begin_averages_anew_but(const std::set<std::string>& found);
  const ParameterAverage* average() const { return average_ ? &*average_ : nullptr; }
  const StateView& averages() const { return averages_; }

  // Copies the state that rank 0's newer state will overwrite. If rank 0 is lost during the
  // transfer, this replica's state is still whole.
  void put_aside();
  void put_back();
  void forget_what_is_aside() { aside_.clear(); }

  // Copies the buffers, because an abandoned step may have moved running statistics.
  void remember_buffers();
  void restore_buffers();

 private:
  Model make_in_parts(const Job& job, const TrainerOptions& options);

  const std::string folder_;  // Of the model's tensors; empty if they are in memory.
  // It must come before the model, whose weights are drawn from it.
  ReplicaRandom random_;
  // If the replica has only parts of the model.
  Model newest_;  // While the factory runs.
  std::unique_ptr<DeferredModel> deferred_;
  Model model_;
  const ModuleState tensors_;
  // An engine may leave only parts of the tensors.
  const std::vector<int64_t> first_elements_;  // By parameter.
  const int64_t elements_;
  std::optional<ParameterAverage> average_;
  StateView averages_;                                    // Its tensors.
  std::vector<std::pair<at::Tensor, at::Tensor>> aside_;  // A tensor, and its old value.
  // The buffers before the step; undefined for those that this replica does not have.
  std::vector<at::Tensor> before_step_;
};

}  // namespace trireme
