// The base of engines whose ranks have the whole model each. A strategy derives from it and says
// how the gradients of all ranks become an update. It says so in two parts, so that a rank that is
// lost while all exchange leaves the others with the state before the step.
#pragma once
#include <trireme/parallel/engine.h>
#include <trireme/parallel/optimizer_view.h>
#include <trireme/parallel/passes.h>
#include <memory>
#include <vector>

namespace trireme {

class ReplicaEngine : public Engine {
 public:
  // COLLECTIVE. Compares model and optimizer over all ranks: Error(invalid_argument) names two
  // ranks and the first difference. Then every rank takes rank 0's parameters and buffers.
  explicit ReplicaEngine(const EngineSetting& setting);

  StepOutcome step(const StepRequest& request) final;
  at::Tensor evaluate(const Batch& batch) override { return output_of(setting_.model, batch); }
  DataShare data_share() const override { return {group().rank(), group().size()}; }
  // Makes every rank's buffers rank 0's. A strategy whose ranks have different parameters brings
  // them together here too.
  void prepare_to_read() override;
  EngineState state() override;
  void begin_load(const IncomingState& incoming) override;
  void end_load() override { optimizer_state_.end_load(); }
  std::vector<double> rates() const override { return optimizer_state_.rates(); }
  void set_rates(std::span<const double> rates) override { optimizer_state_.set_rates(rates); }
  const plan::EnginePlan& plan() const override { return plan_; }
  bool is_torn() const override { return updating_; }
  MemoryUse memory_use() const override { return passes_.memory_use(); }

 protected:
  // Both are called once in a step, with autograd off, and only if the losses of all ranks are
  // finite. A trainable parameter's .grad is this rank's part of the gradient of the mean loss
  // over the global batch: the sum over all ranks is the gradient. It is undefined if this rank
  // has no samples, or if its loss does not depend on the parameter. It is cleared after update().
  //
  // COLLECTIVE. May change gradients and values that belong to this step alone, but neither
  // parameters nor state.
  virtual void exchange() = 0;
  // Changes parameters and state. Waits for no other rank.
  virtual void update() = 0;
  // The tensors that the strategy keeps between steps, besides the optimizer's.
  virtual StateView own_state() { return {}; }

  Group& group() const { return *setting_.group; }
  const MeshRank& mesh() const { return setting_.mesh; }
  // Also those that are frozen: they never have a gradient.
  const std::vector<NamedTensor>& parameters() const { return model_.parameters; }
  const std::vector<NamedTensor>& buffers() const { return model_.buffers; }
  // Its step() updates from each parameter's .grad.
  torch::optim::Optimizer& optimizer() const { return *optimizer_; }

 private:
  void agree_on_model() const;
  StepOutcome share_facts(const Contribution& mine) const;

  const EngineSetting setting_;
  ModuleState model_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  OptimizerView optimizer_state_;
  Passes passes_;
  plan::EnginePlan plan_;
  bool updating_ = false;
};

}  // namespace trireme
