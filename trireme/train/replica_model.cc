#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <trireme/base/hash.h>
#include <trireme/comm/dtype.h>
#include <trireme/tensor/hollow.h>
#include <trireme/train/replica_model.h>

namespace trireme {
namespace {

Model make_model_of(const ModelFactory& factory, plan::DType dtype) {
  Model model = factory();
  check(model);
  prepare_for_training(*model.module, to_torch(dtype));
  return model;
}

int64_t elements_of(const std::vector<NamedTensor>& tensors) {
  int64_t elements = 0;
  for (const auto& [name, tensor] : tensors) elements += tensor.numel();
  return elements;
}

}  // namespace

ReplicaModel::ReplicaModel(const Job& job, const TrainerOptions& options, bool in_parts)
    : random_(mix64(options.seed, uint64_t{0})),
      model_(in_parts ? make_in_parts(job, options) : make_model_of(job.model, options.dtype)),
      tensors_(state_of(*model_.module)),
      elements_(elements_of(tensors_.parameters)) {}

// The factory runs again where a part of the model gets its values. The forward and the blocks
// that count are those of the module that stays.
Model ReplicaModel::make_in_parts(const Job& job, const TrainerOptions& options) {
  deferred_ = std::make_unique<DeferredModel>([this, factory = job.model, dtype = options.dtype] {
    newest_ = make_model_of(factory, dtype);
    return newest_.module;
  });
  return std::exchange(newest_, Model());
}

void ReplicaModel::keep_only(const std::set<std::string>& names) {
  std::set<std::string> others;
  for (const auto* const part : {&tensors_.parameters, &tensors_.buffers})
    for (const auto& [name, tensor] : *part)
      if (!names.contains(name)) others.insert(name);
  deferred_->release(others);
  deferred_->materialise(names);
  newest_ = Model();
}

void ReplicaModel::drop_gradients() {
  for (const auto& [name, tensor] : tensors_.parameters) tensor.mutable_grad().reset();
}

std::vector<at::Tensor> ReplicaModel::trainable() const {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : tensors_.parameters)
    if (tensor.requires_grad()) tensors.push_back(tensor);
  return tensors;
}

void ReplicaModel::begin_averages(double decay) { average_.emplace(decay, trainable()); }

void ReplicaModel::begin_averages_anew_but(const std::set<std::string>& found) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> parameters = trainable();
  const StateView view = averages();
  for (size_t i = 0; i < view.size(); ++i)
    if (!found.contains(name_in_file(view[i], 0))) view[i].tensor.copy_(parameters[i]);
}

StateView ReplicaModel::averages() const {
  StateView view;
  if (!average_) return view;
  size_t next = 0;
  for (const auto& [name, tensor] : tensors_.parameters)
    if (tensor.requires_grad())
      view.push_back(whole(name, average_->averages()[next++], StateKind::average));
  return view;
}

void ReplicaModel::put_aside() {
  aside_.clear();
  for (const auto* const part : {&tensors_.parameters, &tensors_.buffers})
    for (const auto& [name, tensor] : *part)
      if (!is_hollow(tensor)) aside_.emplace_back(tensor, tensor.detach().clone());
  if (average_)
    for (const at::Tensor& average : average_->averages())
      aside_.emplace_back(average, average.clone());
}

void ReplicaModel::put_back() {
  for (auto& [tensor, value] : aside_) tensor.set_data(value);
  aside_.clear();
}

void ReplicaModel::restore_buffers() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < before_step_.size(); ++i)
    tensors_.buffers[i].tensor.copy_(before_step_[i]);
}

}  // namespace trireme
