// The pieces of a model that live on one parameter server, with the optimizer that updates them.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/plan/placement_plan.h>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::fused {
class FusedOptimizer;
}

namespace trireme::servers {

// "conv1.weight[0:4096]"
std::string name_of(const plan::PlacementPlan& placement, const plan::ServerPiece& piece);

// The learning rate of the first group of an optimizer that this makes.
double first_rate_of(const OptimizerFactory& optimizer);

// Used under one lock.
class ServerShard {
 public:
  // The pieces of `server`, as zeros. Throws Error(unsupported) for an optimizer whose update of
  // an element needs others (Lars, Lamb), because a piece may be a part of a tensor.
  ServerShard(const plan::PlacementPlan& placement, int server, const OptimizerFactory& optimizer);
  ~ServerShard();

  size_t size() const { return pieces_.size(); }
  const plan::ServerPiece& piece(size_t i) const { return pieces_[i]; }
  // [piece]: a flat tensor; "conv1.weight[0:4096]".
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

  // [piece]: its gradient, in its type; null where there is none, and nothing changes.
  void update(const std::vector<void*>& gradients);
  // The learning rates of the optimizer's groups. Throws Error(invalid_argument) for another
  // number of groups.
  void set_rates(std::span<const double> rates);
  // Copies the values. `places`: [piece].
  void copy_to(const std::vector<std::byte*>& places) const;
  // [piece]: its values and its bytes.
  std::byte* data(size_t i) const { return data_[i]; }
  size_t bytes(size_t i) const { return bytes_[i]; }
  // A tensor of a piece's form in other memory.
  at::Tensor tensor_in(size_t i, void* memory) const;

  // The state of the optimizer, by the names of pieces: "exp_avg/conv1.weight[0:4096]".
  OptimizerState optimizer_state() const;
  // Throws Error(invalid_argument) if it is that of another optimizer.
  void load_optimizer_state(const OptimizerState& state);

 private:
  std::vector<plan::ServerPiece> pieces_;
  std::vector<NamedTensor> parameters_;
  std::vector<std::byte*> data_;
  std::vector<size_t> bytes_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<fused::FusedOptimizer> fused_;  // Null for optimizers of the user's own.
};

}  // namespace trireme::servers
