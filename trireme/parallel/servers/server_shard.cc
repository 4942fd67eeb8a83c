#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/fused/fused_optimizer.h>
#include <trireme/parallel/servers/server_shard.h>
#include <cstring>

namespace trireme::servers {

std::string name_of(const plan::PlacementPlan& placement, const plan::ServerPiece& piece) {
  return fmt::format("{}[{}:{}]", placement.facts.tensors[static_cast<size_t>(piece.tensor)].name,
                     piece.from, piece.from + piece.count);
}

double first_rate_of(const OptimizerFactory& optimizer) {
  const auto made = optimizer({{"", at::zeros({1}).set_requires_grad(true)}});
  return made->param_groups().at(0).options().get_lr();
}

ServerShard::ServerShard(const plan::PlacementPlan& placement, int server,
                         const OptimizerFactory& optimizer) {
  for (const plan::ServerPiece& piece : placement.pieces) {
    if (piece.server != server) continue;
    const plan::TensorSpec& tensor = placement.facts.tensors[static_cast<size_t>(piece.tensor)];
    pieces_.push_back(piece);
    parameters_.push_back({name_of(placement, piece),
                           at::zeros({piece.count}, at::TensorOptions(to_torch(tensor.dtype)))
                               .set_requires_grad(true)});
    data_.push_back(static_cast<std::byte*>(parameters_.back().tensor.mutable_data_ptr()));
    bytes_.push_back(parameters_.back().tensor.nbytes());
  }
  if (parameters_.empty()) return;  // A server of a tiny model may have nothing.
  optimizer_ = optimizer(parameters_);
  fused_ = fused::FusedOptimizer::of(*optimizer_, parameters_);
  const std::string kind = kind_of(*optimizer_);
  if (kind == "Lars" || kind == "Lamb")
    throw Error(ErrorCode::unsupported, "parallel",
                fmt::format("{} on parameter servers, which have parts of layers", kind),
                "sgd, adam, adamw, rmsprop or adagrad");
}

ServerShard::~ServerShard() = default;

void ServerShard::update(const std::vector<void*>& gradients) {
  if (fused_) {
    std::vector<int> with;
    for (size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i] != nullptr) with.push_back(static_cast<int>(i));
    for (const int i : fused_->begin_step(with))
      fused_->update({i, 0, pieces_[static_cast<size_t>(i)].count},
                     gradients[static_cast<size_t>(i)]);
    return;
  }
  for (size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].tensor.mutable_grad() =
        gradients[i] != nullptr ? tensor_in(i, gradients[i]) : at::Tensor();
  if (optimizer_) optimizer_->step();
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void ServerShard::set_rates(std::span<const double> rates) {
  if (!optimizer_) return;
  auto& groups = optimizer_->param_groups();
  if (groups.size() != rates.size())
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("{} learning rates for the optimizer of a server, which has {} groups",
                            rates.size(), groups.size()),
                "the same optimizer everywhere");
  for (size_t i = 0; i < groups.size(); ++i) groups[i].options().set_lr(rates[i]);
}

OptimizerState ServerShard::optimizer_state() const {
  return optimizer_ ? state_of(*optimizer_, parameters_) : OptimizerState();
}

void ServerShard::load_optimizer_state(const OptimizerState& state) {
  if (optimizer_) load_state(*optimizer_, parameters_, state);
}

void ServerShard::copy_to(const std::vector<std::byte*>& places) const {
  for (size_t i = 0; i < places.size(); ++i) std::memcpy(places[i], data_[i], bytes_[i]);
}

at::Tensor ServerShard::tensor_in(size_t i, void* memory) const {
  const at::Tensor& tensor = parameters_[i].tensor;
  return at::from_blob(memory, tensor.sizes(), tensor.options().requires_grad(false));
}

}  // namespace trireme::servers
