#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <trireme/parallel/boxes.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/mesh/part_optimizer.h>
#include <algorithm>

namespace trireme {

PartOptimizer::PartOptimizer(const OptimizerFactory& make, std::vector<OwnTensor> parts,
                             std::vector<NamedTensor> updated)
    : parts_(std::move(parts)),
      updated_(std::move(updated)),
      optimizer_(make(updated_)),
      view_(*optimizer_, updated_),
      fused_(fused::FusedOptimizer::of(*optimizer_, updated_)) {}

std::vector<int> PartOptimizer::with_gradients() const {
  std::vector<int> all;
  for (size_t i = 0; i < updated_.size(); ++i)
    if (updated_[i].tensor.grad().defined()) all.push_back(static_cast<int>(i));
  return all;
}

double PartOptimizer::squared_norm() const {
  std::vector<at::Tensor> counted;
  for (size_t i = 0; i < parts_.size(); ++i)
    if (parts_[i].counts) counted.push_back(updated_[i].tensor.grad());
  const double norm = norm_of(counted);
  return norm * norm;
}

void PartOptimizer::scale_gradients(double factor) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, tensor] : updated_) gradients.push_back(tensor.grad());
  multiply(gradients, factor);
}

int64_t PartOptimizer::counted_elements() const {
  int64_t elements = 0;
  for (const OwnTensor& part : parts_)
    if (part.counts && part.tensor.requires_grad()) elements += part.tensor.numel();
  return elements;
}

void PartOptimizer::step() {
  if (fused_)
    fused::update_alone(*fused_, updated_, with_gradients());
  else
    optimizer_->step();
}

void PartOptimizer::step_divided(Group& group, const plan::RowShards& shards) {
  if (!fused_ || !fused_->layerwise()) return step();
  const at::NoGradGuard no_grad;
  const std::vector<int> used = fused_->begin_step(with_gradients());
  const at::Tensor squares = at::zeros({2 * std::ssize(used)}, at::kDouble);
  auto* const sums = squares.mutable_data_ptr<double>();
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < used.size(); ++i) {
    const auto part = static_cast<size_t>(used[i]);
    gradients.push_back(updated_[part].tensor.grad().contiguous());
    // It also advances the averages of Lamb.
    const fused::Squares own = fused_->measure({used[i], 0, updated_[part].tensor.numel()},
                                               gradients[i].const_data_ptr());
    if (!shards.divides(used[i]) && group.rank() > 0) continue;  // All have the same values.
    sums[2 * i] = own.parameter;
    sums[2 * i + 1] = own.direction;
  }
  group.all_reduce(squares);
  for (size_t i = 0; i < used.size(); ++i) {
    const at::Tensor& tensor = updated_[static_cast<size_t>(used[i])].tensor;
    fused_->set_norms(used[i], {sums[2 * i], sums[2 * i + 1]});
    fused_->update({used[i], 0, tensor.numel()}, gradients[i].const_data_ptr());
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

// The part that a state tensor belongs to. Null if the rank does not have it.
const OwnTensor* PartOptimizer::part_with_state(const std::string& name) const {
  const auto found = std::ranges::find(parts_, parameter_of(name), &OwnTensor::name);
  return found == parts_.end() ? nullptr : &*found;
}

void PartOptimizer::show(EngineState& state) const {
  for (size_t i = 0; i < parts_.size(); ++i)
    if (!updated_[i].tensor.is_same(parts_[i].tensor))
      show_boxes(parts_[i].name, parts_[i].boxes, updated_[i].tensor, StateKind::master,
                 state.tensors);
  EngineState own;
  view_.show(own);
  state.counters.update(own.counters);
  for (const StateEntry& entry : own.tensors)
    if (const OwnTensor* const part = part_with_state(entry.slice.tensor))
      show_boxes(entry.slice.tensor, part->boxes, entry.tensor, entry.kind, state.tensors);
    else
      state.tensors.push_back(entry);
}

void PartOptimizer::begin_load(const IncomingState& incoming) {
  std::vector<plan::TensorSpec> mine;
  for (const plan::TensorSpec& spec : incoming.tensors) {
    const OwnTensor* const part = part_with_state(spec.name);
    if (part == nullptr && spec.name != "archive") continue;
    mine.push_back(spec);
    if (part) mine.back().shape = sizes_of(part->boxes);
  }
  view_.begin_load(incoming.counters, mine);
}

}  // namespace trireme
