#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <trireme/parallel/boxes.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/mesh/part_optimizer.h>
#include <algorithm>

namespace trireme {
namespace {

bool has_parameters(const torch::optim::Optimizer& optimizer) {
  return std::ranges::any_of(optimizer.param_groups(),
                             [](const auto& group) { return !group.params().empty(); });
}

// Tensors may be hollow.
bool has_storage_of(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

// The tensors that go into a file: parameters whose memory the optimizer updates, or what it
// updates instead.
std::vector<NamedTensor> wholes_of(const std::vector<OwnTensor>& parameters,
                                   const std::vector<NamedTensor>& updated) {
  std::vector<NamedTensor> wholes = updated;
  for (size_t i = 0; i < wholes.size(); ++i)
    if (has_storage_of(updated[i].tensor, parameters[i].tensor))
      wholes[i].tensor = parameters[i].tensor;
  return wholes;
}

}  // namespace

PartOptimizer::PartOptimizer(const ParameterKeeperSetting& setting, std::vector<OwnTensor> parts,
                             std::vector<NamedTensor> updated, std::vector<NamedTensor> gradients)
    : parts_(std::move(parts)),
      updated_(std::move(updated)),
      optimizer_(setting.optimizer(updated_)),
      view_(*optimizer_, updated_),
      fused_(fused::FusedOptimizer::of(*optimizer_, updated_)) {
  if (setting.offload.name() == "none") return;
  // A stage may have nothing to train.
  if (has_parameters(*optimizer_)) check_offload(setting.offload, fused_.get());
  offloaded_ = std::make_unique<OffloadedModel>(
      OffloadedTensors{.updated = updated_,
                       .wholes = wholes_of(setting.parameters, updated_),
                       .gradients = std::move(gradients)},
      fused_.get(), setting.offload, /*watches_backward=*/false);
}

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
  const double norm = norm_of(counted, gradient_used());
  return norm * norm;
}

void PartOptimizer::scale_gradients(double factor) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, tensor] : updated_) gradients.push_back(tensor.grad());
  multiply(gradients, factor, gradient_used());
}

// A gradient in a file leaves memory when a pass is done with it.
TensorUsed PartOptimizer::gradient_used() const {
  if (!gradient_files()) return {};
  return [files = gradient_files()](const at::Tensor& gradient) {
    files->used(gradient.const_data_ptr(), gradient.nbytes());
  };
}

int64_t PartOptimizer::counted_elements() const {
  int64_t elements = 0;
  for (const OwnTensor& part : parts_)
    if (part.counts && part.tensor.requires_grad()) elements += part.tensor.numel();
  return elements;
}

void PartOptimizer::step() {
  if (offloaded_)
    offloaded_->update(with_gradients());
  else if (fused_)
    fused::update_alone(*fused_, updated_, with_gradients());
  else
    optimizer_->step();
}

void PartOptimizer::step_divided(Group& group, const plan::RowShards& shards) {
  if (!fused_ || !fused_->layerwise()) return step();
  const at::NoGradGuard no_grad;
  if (offloaded_) offloaded_->begin_update();
  std::function<void(const fused::Range&)> passed;
  if (offloaded_) passed = [this](const fused::Range& range) { offloaded_->used(range); };
  const std::vector<int> used = fused_->begin_step(with_gradients());
  const at::Tensor squares = at::zeros({2 * std::ssize(used)}, at::kDouble);
  auto* const sums = squares.mutable_data_ptr<double>();
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < used.size(); ++i) {
    const auto part = static_cast<size_t>(used[i]);
    gradients.push_back(updated_[part].tensor.grad().contiguous());
    // It also advances the averages of Lamb.
    const fused::Range whole{used[i], 0, updated_[part].tensor.numel()};
    const fused::Squares own = fused_->measure(whole, gradients[i].const_data_ptr());
    if (passed) passed(whole);
    if (!shards.divides(used[i]) && group.rank() > 0) continue;  // All have the same values.
    sums[2 * i] = own.parameter;
    sums[2 * i + 1] = own.direction;
  }
  group.all_reduce(squares);
  for (size_t i = 0; i < used.size(); ++i) {
    const at::Tensor& tensor = updated_[static_cast<size_t>(used[i])].tensor;
    fused_->set_norms(used[i], {sums[2 * i], sums[2 * i + 1]});
    fused::update_whole(*fused_, used[i], gradients[i], passed);
    tensor.unsafeGetTensorImpl()->bump_version();
  }
  if (offloaded_) offloaded_->end_update();
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
