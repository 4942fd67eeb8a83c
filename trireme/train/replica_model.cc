#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <trireme/base/hash.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/file_tensors.h>
#include <trireme/tensor/hollow.h>
#include <trireme/train/replica_model.h>
#include <algorithm>
#include <numeric>

namespace trireme {
namespace {

// A model that is larger than memory is never there as a whole: it is made in a file.
Model make_model_of(const ModelFactory& factory, plan::DType dtype, const std::string& folder) {
  const TensorsInFiles in_files(folder);
  Model model = factory();
  check(model);
  prepare_for_training(*model.module, to_torch(dtype));
  return model;
}

Model moved(Model model, at::Device device) {
  if (!device.is_cpu()) model.module->to(device);
  return model;
}

std::vector<int64_t> elements_of(const std::vector<NamedTensor>& tensors) {
  std::vector<int64_t> elements;
  for (const auto& [name, tensor] : tensors) elements.push_back(tensor.numel());
  return elements;
}

// Whether tensors lie where others lay before.
bool are_in_place(const std::vector<at::Tensor>& now, const std::vector<at::Tensor>& before) {
  return std::ranges::equal(now, before, [](const at::Tensor& a, const at::Tensor& b) {
    return a.numel() == 0 || (a.is_alias_of(b) && a.storage_offset() == b.storage_offset());
  });
}

}  // namespace

ReplicaModel::ReplicaModel(const Job& job, const TrainerOptions& options, bool in_parts,
                           at::Device device)
    : folder_(options.memory.folder_of_parameters()),
      random_(mix64(options.seed, uint64_t{0})),
      model_(in_parts ? make_in_parts(job, options)
                      : moved(make_model_of(job.model, options.dtype, folder_), device)),
      tensors_(state_of(*model_.module)),
      first_elements_(elements_of(tensors_.parameters)),
      elements_(std::reduce(first_elements_.begin(), first_elements_.end())) {
  if (!device.is_cpu()) random_.draw_on(device);
}

// The factory runs again where a part of the model gets its values. The forward and the blocks
// that count are those of the module that stays.
Model ReplicaModel::make_in_parts(const Job& job, const TrainerOptions& options) {
  deferred_ = std::make_unique<DeferredModel>([this, factory = job.model, dtype = options.dtype] {
    newest_ = make_model_of(factory, dtype, folder_);
    return newest_.module;
  });
  return std::exchange(newest_, Model());
}

void ReplicaModel::keep_only(const std::set<std::string>& names) {
  const TensorsInFiles in_files(folder_);
  std::set<std::string> others;
  for (const auto* const part : {&tensors_.parameters, &tensors_.buffers})
    for (const auto& [name, tensor] : *part)
      if (!names.contains(name)) others.insert(name);
  deferred_->release(others);
  // A part of a divided layer that this rank had in an earlier generation: its values are about to
  // come from a rank that has them, or from a checkpoint.
  std::set<std::string> at_first = names;
  for (size_t i = 0; i < tensors_.parameters.size(); ++i) {
    const auto& [name, tensor] = tensors_.parameters[i];
    if (!names.contains(name) || !is_hollow(tensor) || tensor.numel() == first_elements_[i])
      continue;
    give_memory(tensor);
    at_first.erase(name);
  }
  deferred_->materialise(at_first);
  newest_ = Model();
}

void ReplicaModel::drop_gradients() {
  for (const auto& [name, tensor] : tensors_.parameters) tensor.mutable_grad().reset();
}

void ReplicaModel::begin_averages(double decay, const StateView& state) {
  std::set<std::string> trained;
  for (const auto& [name, tensor] : tensors_.parameters)
    if (tensor.requires_grad()) trained.insert(name);
  std::vector<at::Tensor> parameters;
  StateView view;
  for (const StateEntry& entry : state) {
    if (entry.kind != StateKind::parameter || !trained.contains(entry.slice.tensor)) continue;
    parameters.push_back(entry.tensor);
    view.push_back({entry.slice, {}, StateKind::average});
  }
  const bool has_same_slices =
      std::ranges::equal(view, averages_, {}, &StateEntry::slice, &StateEntry::slice);
  if (average_ && has_same_slices && are_in_place(parameters, average_->parameters())) return;
  average_.emplace(decay, std::move(parameters));
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < view.size(); ++i) {
    view[i].tensor = average_->averages()[i];
    if (has_same_slices) view[i].tensor.copy_(averages_[i].tensor);
  }
  averages_ = std::move(view);
}

void ReplicaModel::begin_averages_anew_but(const std::set<std::string>& found) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < averages_.size(); ++i)
    if (!found.contains(name_in_file(averages_[i], 0)))
      averages_[i].tensor.copy_(average_->parameters()[i]);
}

void ReplicaModel::put_aside() {
  aside_.clear();
  for (const auto* const part : {&tensors_.parameters, &tensors_.buffers})
    for (const auto& [name, tensor] : *part)
      if (!is_hollow(tensor)) aside_.emplace_back(tensor, tensor.detach().clone());
  for (const StateEntry& entry : averages_)
    aside_.emplace_back(entry.tensor, entry.tensor.clone());
}

void ReplicaModel::put_back() {
  for (auto& [tensor, value] : aside_) tensor.set_data(value);
  aside_.clear();
}

void ReplicaModel::remember_buffers() {
  before_step_.clear();
  for (const auto& [name, tensor] : tensors_.buffers)
    before_step_.push_back(is_hollow(tensor) ? at::Tensor() : tensor.clone());
}

void ReplicaModel::restore_buffers() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < before_step_.size(); ++i)
    if (before_step_[i].defined()) tensors_.buffers[i].tensor.copy_(before_step_[i]);
}

}  // namespace trireme
