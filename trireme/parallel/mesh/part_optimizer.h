// The optimizer of a keeper, whose parameters are parts of whole tensors.
#pragma once
#include <trireme/parallel/engine.h>
#include <trireme/parallel/fused/fused_optimizer.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/mesh/parameter_keeper.h>
#include <trireme/parallel/offloaded_model.h>
#include <trireme/parallel/optimizer_view.h>
#include <trireme/plan/row_shards.h>
#include <memory>
#include <vector>

namespace trireme {

// Used by one thread.
class PartOptimizer {
 public:
  // updated[i] is what the optimizer updates of parts[i]: the part itself, or its master.
  // `offload` is for these and, where updated[i] has the memory of setting.parameters[i], for the
  // whole of that. `gradients` are the tensors whose gradients follow parameters into files.
  // Throws the errors of check_offload() and OffloadedModel.
  PartOptimizer(const ParameterKeeperSetting& setting, std::vector<OwnTensor> parts,
                std::vector<NamedTensor> updated, std::vector<NamedTensor> gradients);

  // Whether it updates each element by itself, but for norms of whole parameters that
  // step_divided() adds up. No optimizer of the user's own is known to.
  bool can_be_divided() const { return fused_ != nullptr || updated_.empty(); }
  // The squared L2 norm of the gradients of the parts that count, in float64.
  double squared_norm() const;
  void scale_gradients(double factor);
  // Null if all is in memory.
  OffloadedModel* offloaded() const { return offloaded_.get(); }
  shared::GradientFiles* gradient_files() const {
    return offloaded_ ? offloaded_->gradients() : nullptr;
  }
  // The trainable elements of the parts that count.
  int64_t counted_elements() const;
  // Updates the parts that have gradients.
  void step();
  // The same for rows that all ranks of `group` own together. COLLECTIVE if the optimizer needs
  // norms of whole parameters (Lars, Lamb): the ranks then add them up before any of them updates.
  void step_divided(Group& group, const plan::RowShards& shards);

  // Adds masters, and the optimizer's tensors with the boxes of the parameters that they belong
  // to.
  void show(EngineState& state) const;
  // Makes the tensors of the parts. `incoming.tensors` have the forms of whole tensors, also of
  // parameters that this rank does not have.
  void begin_load(const IncomingState& incoming);
  void end_load() { view_.end_load(); }
  std::vector<double> rates() const { return view_.rates(); }
  void set_rates(std::span<const double> rates) { view_.set_rates(rates); }

 private:
  TensorUsed gradient_used() const;
  const OwnTensor* part_with_state(const std::string& name) const;
  std::vector<int> with_gradients() const;

  const std::vector<OwnTensor> parts_;
  const std::vector<NamedTensor> updated_;
  const std::shared_ptr<torch::optim::Optimizer> optimizer_;
  OptimizerView view_;
  const std::unique_ptr<fused::FusedOptimizer> fused_;  // Null for one of the user's own.
  std::unique_ptr<OffloadedModel> offloaded_;
};

}  // namespace trireme
