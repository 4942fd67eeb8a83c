#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/parallel/optimizer_transfer.h>
#include <trireme/train/loop_model.h>
#include <algorithm>
#include <utility>

namespace trireme {

LoopModel::LoopModel(std::string the_name, torch::nn::Module& module,
                     torch::optim::Optimizer& the_optimizer)
    : name(std::move(the_name)),
      optimizer(the_optimizer),
      state(named(state_of(module))),
      view(optimizer, updated()) {}

LoopModel::LoopModel(std::string the_name, DataParallel& the_replica)
    : name(std::move(the_name)),
      replica(&the_replica),
      optimizer(the_replica.optimizer()),
      state(named(the_replica.state())),
      view(optimizer, updated()) {}

// "critic.weight" of "weight", and "error/critic.weight" of "error/weight".
std::string LoopModel::named(const std::string& tensor) const {
  if (name.empty()) return tensor;
  const std::string parameter = parameter_of(tensor);
  if (parameter.empty()) return name + "." + tensor;
  return tensor.substr(0, tensor.size() - parameter.size()) + name + "." + parameter;
}

std::vector<NamedTensor> LoopModel::named(std::vector<NamedTensor> tensors) const {
  for (NamedTensor& each : tensors) each.name = named(each.name);
  return tensors;
}

// The tensors that the optimizer updates.
std::vector<NamedTensor> LoopModel::updated() const {
  return replica ? named(replica->updated_parameters()) : state.parameters;
}

ModuleState LoopModel::named(ModuleState own) const {
  if (name.empty()) return own;
  own.parameters = named(std::move(own.parameters));
  own.buffers = named(std::move(own.buffers));
  own.aliases.clear();
  return own;
}

bool LoopModel::has(const std::string& parameter) const {
  return std::ranges::any_of(state.parameters,
                             [&](const NamedTensor& each) { return each.name == parameter; });
}

void LoopModel::prepare_to_read(Group& group) {
  if (!replica) return broadcast_tensors(group, state.buffers);
  if (replica->shares_parameters()) replica->check_parameters();
  replica->synchronise();
  replica->sync_buffers();
}

StateView LoopModel::tensors() const {
  StateView all;
  if (!replica) {
    append(all, state.parameters, StateKind::parameter);
    append(all, state.buffers, StateKind::buffer);
    return all;
  }
  all = replica->state_view();
  for (StateEntry& entry : all) entry.slice.tensor = named(entry.slice.tensor);
  return all;
}

void LoopModel::show(EngineState& all) const {
  for (StateEntry& entry : tensors()) all.tensors.push_back(std::move(entry));
  view.show(all);
}

Json LoopModel::counters() const { return replica ? replica->counters() : Json(); }

void LoopModel::load_counters(const Json& counters) {
  if (replica && counters.is_object()) replica->load_counters(counters);
}

void LoopModel::begin_load(const std::vector<double>& rates, const Json& optimizer_counters,
                           const IncomingState& incoming, Group& group) {
  std::vector<plan::TensorSpec> own;
  for (const plan::TensorSpec& spec : incoming.tensors)
    if (const std::string of = parameter_of(spec.name); of.empty() || has(of)) own.push_back(spec);
  look_at_groups(rates, /*has_state=*/!own.empty());
  if (incoming.model_is_new && replica) {
    replica->sync_state();
  } else if (incoming.model_is_new) {
    broadcast_tensors(group, state.parameters);
    broadcast_tensors(group, state.buffers);
  }
  view.begin_load({{"optimizer", optimizer_counters}}, own);
}

void LoopModel::end_load() {
  view.end_load();
  if (replica) replica->sync_masters();
}

void LoopModel::keep() {
  const at::NoGradGuard no_grad;
  for (const StateEntry& entry : tensors()) {
    const at::Tensor now = entry.tensor.detach();
    at::Tensor& copy = kept_[name_in_file(entry, 0)];
    if (!copy.defined() || copy.sizes() != now.sizes()) copy = at::empty_like(now);
    copy.copy_(now);
  }
  kept_optimizer_ = state_of(optimizer, updated());
  for (NamedTensor& tensor : kept_optimizer_.tensors)
    tensor.tensor = tensor.tensor.detach().clone();
}

void LoopModel::put_back(bool (*which)(StateKind kind)) const {
  const at::NoGradGuard no_grad;
  for (const StateEntry& entry : tensors())
    if (const auto kept = kept_.find(name_in_file(entry, 0));
        which(entry.kind) && kept != kept_.end() && kept->second.sizes() == entry.tensor.sizes())
      at::Tensor(entry.tensor.detach()).copy_(kept->second);
}

// Masters come behind the parameters, from which sync_state() makes them.
void LoopModel::go_on_from_kept(Group& group, bool has_own) {
  const bool first = group.rank() == 0;
  if (first) put_back(is_of_model);
  if (replica) {
    replica->sync_state();
  } else {
    broadcast_tensors(group, state.parameters);
    broadcast_tensors(group, state.buffers);
  }
  const auto is_of_engine = [](StateKind kind) {
    return !is_of_model(kind) && !is_of_one_rank(kind);
  };
  if (first) put_back(is_of_engine);
  std::vector<NamedTensor> of_engine;
  for (const StateEntry& entry : tensors())
    if (is_of_engine(entry.kind)) of_engine.push_back({entry.slice.tensor, entry.tensor});
  broadcast_tensors(group, of_engine);
  if (first) {
    OptimizerState own = kept_optimizer_;
    for (NamedTensor& tensor : own.tensors) tensor.tensor = tensor.tensor.clone();
    load_state(optimizer, updated(), own);
  }
  take_optimizer_of(0, group, optimizer, updated());
  if (replica) replica->sync_masters();
  if (has_own) put_back(is_of_one_rank);
}

void LoopModel::refuse_groups(size_t saved) const {
  throw Error(ErrorCode::invalid_argument, "train",
              fmt::format("the checkpoint has {} groups of parameters in the optimizer of {}, "
                          "and this programme has {}",
                          saved, shown(), optimizer.param_groups().size()),
              "the groups of the run that wrote it, before resume() or run_elastic(), or "
              "another folder");
}

// The loop may add groups that are not there yet until its next commit. LibTorch adds none for
// parameters that have a state already.
void LoopModel::look_at_groups(const std::vector<double>& saved, bool has_state) {
  const size_t own = optimizer.param_groups().size();
  if (own > saved.size() || (own < saved.size() && has_state)) refuse_groups(saved.size());
  loaded_groups_ = own;
  saved_rates_ = saved;
}

void LoopModel::look_at_awaited_groups() {
  if (saved_rates_.empty()) return;
  const std::vector<double> own = view.rates();
  if (own.size() < saved_rates_.size()) refuse_groups(saved_rates_.size());
  for (size_t i = loaded_groups_; i < saved_rates_.size(); ++i)
    if (own[i] != saved_rates_[i])
      log_warning(
          "the optimizer of {} has a group of parameters that was added behind resume(), with "
          "the learning rate {:g}, and the checkpoint has {:g} for it; try: make it before "
          "resume() or run_elastic(), unless the loop sets the rate of each step",
          shown(), own[i], saved_rates_[i]);
  saved_rates_.clear();
}

}  // namespace trireme
