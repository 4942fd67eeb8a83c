#include <ATen/Parallel.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/launch/phase_marks.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/fused/fused_optimizer.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/reproducible_exchange.h>
#include <trireme/parallel/shared/shared_exchange.h>
#include <trireme/parallel/sync_batch_norm.h>
#include <trireme/tensor/master_weights.h>
#include <cmath>

namespace trireme {
namespace {

std::map<std::string, std::string> facts_of(const ModuleState& state,
                                            const DataParallelOptions& options,
                                            torch::optim::Optimizer& optimizer) {
  std::map<std::string, std::string> facts = trireme::facts_of(state);
  facts["share_parameters"] =
      options.share_parameters ? options.guard.wanted ? "guarded" : "yes" : "no";
  facts["clip_norm"] = fmt::format("{}", options.clip_norm);
  facts["bucket bytes"] =
      fmt::format("{} {}", options.buckets.first_bytes, options.buckets.capacity_bytes);
  facts["compression"] = fmt::format("{} {} {}", options.compression.name,
                                     options.compression.rank, options.compression.ratio);
  facts["local steps"] =
      fmt::format("{} {} {}", options.local.steps, options.local.after, options.local.momentum);
  facts["virtual shards, threads"] =
      options.virtual_shards > 0
          ? fmt::format("{} {}", options.virtual_shards, at::get_num_threads())
          : "no";
  facts["loss scaling"] =
      options.loss_scaling ? GradScaler(*options.loss_scaling).state().dump() : "no";
  facts["optimizer"] = c10::demangle(typeid(optimizer).name());
  const auto& parts = optimizer.param_groups();
  for (size_t i = 0; i < parts.size(); ++i)
    facts[fmt::format("optimizer group {}", i)] =
        fmt::format("{} parameters, lr {}", parts[i].params().size(), parts[i].options().get_lr());
  return facts;
}

// An overflow shows in the norm, so loss scaling needs the norm.
ExchangeOptions exchange_options(const DataParallelOptions& options) {
  return {options.clip_norm, options.gradient_norm || options.loss_scaling.has_value(),
          options.buckets,   options.compression,
          options.accept,    options.guard};
}

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

// Whether parameters are tied by their storage (one has the storage of another by set_data)
// instead of being one tensor. The shared copy would separate them.
bool share_memory(const std::vector<NamedTensor>& parameters) {
  std::map<const std::byte*, size_t> bytes_at;
  for (const auto& [name, tensor] : parameters)
    if (const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
        tensor.numel() > 0 && !bytes_at.emplace(data, tensor.nbytes()).second)
      return true;
  const std::byte* end = nullptr;
  for (const auto& [begin, bytes] : bytes_at) {
    if (begin < end) return true;
    end = begin + bytes;
  }
  return false;
}

// The tensors that are reduced and updated: the module's parameters, or the float32 masters of
// those that are kept in 16 bits.
struct Updated {
  ModuleState state;
  MasterWeights masters;
  std::vector<NamedTensor> parameters;
  std::shared_ptr<torch::optim::Optimizer> optimizer;

  Updated(const torch::nn::Module& module, const OptimizerFactory& factory)
      : state(state_of(module)),
        masters(tensors_of(state.parameters)),
        parameters(state.parameters) {
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].tensor = masters.masters()[i];
    optimizer = factory(parameters);
  }
  // An optimizer made by the caller has the module's own parameters.
  Updated(const torch::nn::Module& module, std::shared_ptr<torch::optim::Optimizer> made)
      : state(state_of(module)),
        masters({}),
        parameters(state.parameters),
        optimizer(std::move(made)) {}
};

}  // namespace

struct DataParallel::Impl : Updated {
  std::shared_ptr<Group> group;
  std::shared_ptr<torch::nn::Module> module;
  ParameterForms forms;
  std::unique_ptr<Exchange> exchange;
  ReproducibleExchange* shards = nullptr;  // The exchange, if there are virtual shards.
  // Null if optimizer->step() updates, or if the exchange has the fused optimizer.
  std::unique_ptr<fused::FusedOptimizer> own_update;
  std::optional<GradScaler> scaler;
  Contribution pending;
  bool told_unused = false;

  Impl(std::shared_ptr<Group> the_group, std::shared_ptr<torch::nn::Module> the_module,
       Updated updated, const DataParallelOptions& options)
      : Updated(std::move(updated)),
        group(std::move(the_group)),
        module(std::move(the_module)),
        forms(*module, state.parameters) {
    check(options.compression);
    if (options.loss_scaling) scaler.emplace(*options.loss_scaling);
    check(options.local);
    make_exchange(options);
    if (options.local.steps > 1 && group->size() > 1)
      exchange = make_local_sgd_exchange(group, parameters, optimizer, std::move(exchange),
                                         exchange_options(options), options.local);
    sync_state();
  }

  void make_exchange(const DataParallelOptions& options) {
    own_update = fused::FusedOptimizer::of(*optimizer, parameters);
    if (options.virtual_shards > 0) return make_reproducible_exchange(options);
    // Compression is meant for the links between hosts, each of which sends one sum of gradients.
    // With a single host it takes the place of sharing, so that it can be tried.
    const bool apart =
        (options.compression.name != "none" && group->hosts() == 1) || options.local.steps > 1;
    // This is the same on every rank, even if some host has only one rank.
    const bool can_share = group->hosts() < group->size() && group->host_team();
    const bool can_finish = own_update && !(options.guard.wanted && own_update->layerwise()) &&
                            !share_memory(parameters);
    if (options.share_parameters && can_share && !apart && can_finish)
      exchange = make_shared_exchange(group, parameters, std::move(own_update),
                                      exchange_options(options));
    else
      exchange = make_all_reduce_exchange(group, parameters, exchange_options(options));
  }

  void make_reproducible_exchange(const DataParallelOptions& options) {
    if (options.local.steps > 1)
      throw Error(ErrorCode::invalid_argument, "parallel",
                  fmt::format("virtual shards with {} local steps: the result of local steps "
                              "depends on the number of replicas",
                              options.local.steps),
                  "one of them");
    auto made = std::make_unique<ReproducibleExchange>(
        group, parameters, exchange_options(options), options.virtual_shards);
    shards = made.get();
    exchange = std::move(made);
  }

  ReproducibleExchange& with_shards() const {
    if (!shards)
      throw Error(ErrorCode::invalid_argument, "parallel", "the replica has no virtual shards",
                  "DataParallelOptions::virtual_shards");
    return *shards;
  }

  // A change of form on any rank ends all ranks, because memory and messages have the
  // old form's size.
  void refuse_new_forms() const {
    const ParameterChange mine = forms.find_new_form();
    const at::Tensor own =
        at::tensor({static_cast<int64_t>(mine.change), int64_t{mine.parameter}});
    const at::Tensor all = at::zeros({group->size(), 2}, at::kLong);
    group->all_gather(own, all.view({-1}));
    for (int rank = 0; rank < group->size(); ++rank)
      if (const auto change = static_cast<Change>(all[rank][0].item<int64_t>());
          change != Change::none)
        throw change_error(rank, {change, static_cast<int>(all[rank][1].item<int64_t>())},
                           names_of(state.parameters));
  }

  void sync_state() {
    refuse_new_forms();
    if (exchange->shares_parameters()) {
      broadcast(kept_in_16_bits());
      if (group->rank() == 0) masters.adopt();
      exchange->sync_parameters();
    } else {
      broadcast(state.parameters);
      masters.adopt();
    }
    broadcast(state.buffers);
  }

  // The parameters that have masters: each replica has its own copy of them.
  std::vector<NamedTensor> kept_in_16_bits() const {
    std::vector<NamedTensor> kept;
    for (size_t i = 0; i < parameters.size(); ++i)
      if (!parameters[i].tensor.is_same(state.parameters[i].tensor))
        kept.push_back(state.parameters[i]);
    return kept;
  }

  // The update on each replica, for an exchange that does not update itself.
  void update(std::span<const int> reduced) {
    launch::mark_phase(Phase::optimizer);
    if (own_update)
      fused::update_alone(*own_update, parameters, reduced);
    else
      optimizer->step();
  }

  void tell_unused(const StepOutcome& outcome) {
    if (told_unused || !outcome.updated) return;
    told_unused = true;
    if (outcome.unused.empty() || group->rank() != 0) return;
    std::string names;
    for (const int p : outcome.unused)
      names += fmt::format("{}'{}'", names.empty() ? "" : ", ",
                           parameters[static_cast<size_t>(p)].name);
    log_warning(
        "the loss of the first step does not depend on {} on any replica: they are not trained",
        names);
  }

  void broadcast(const std::vector<NamedTensor>& tensors) {
    if (group->size() == 1) return;
    const torch::NoGradGuard no_grad;
    for (const auto& [name, tensor] : tensors) {
      const at::Tensor whole = tensor.detach().contiguous();
      // Broadcasts bytes, because buffers may have types that groups do not reduce.
      group->broadcast(whole.view({-1}).view(at::kByte), 0);
      if (whole.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(whole);
    }
  }

  StepOutcome finish(const Update& update) {
    Contribution mine = std::exchange(pending, Contribution{});
    if (scaler) mine.gradient_scale = scaler->scale();
    mine.change = forms.find_change();
    separate_gradients(state.parameters);
    masters.take_gradients();
    const StepOutcome outcome = exchange->exchange(mine, update);
    masters.publish();
    tell_unused(outcome);
    if (scaler && outcome.samples > 0 && outcome.nonfinite_ranks.empty())
      scaler->update(outcome.nonfinite_gradients);
    return outcome;
  }
};

namespace {

std::unique_ptr<DataParallel::Impl> join(World& world, std::shared_ptr<torch::nn::Module> module,
                                         Updated updated, const DataParallelOptions& options) {
  if (!updated.optimizer)
    throw Error(ErrorCode::invalid_argument, "parallel", "the optimizer is null",
                "pass one, or options such as trireme::SGD{.lr = 0.1}");
  auto group = world.make_groups(1)[0];
  world.agree("model", facts_of(updated.state, options, *updated.optimizer));
  return std::make_unique<DataParallel::Impl>(std::move(group), std::move(module),
                                              std::move(updated), options);
}

}  // namespace

DataParallel::DataParallel(World& world, std::shared_ptr<torch::nn::Module> module,
                           const OptimizerFactory& optimizer, DataParallelOptions options)
    : impl_(join(world, module, Updated(*module, optimizer), options)) {}
DataParallel::DataParallel(World& world, std::shared_ptr<torch::nn::Module> module,
                           std::shared_ptr<torch::optim::Optimizer> optimizer,
                           DataParallelOptions options)
    : impl_(join(world, module, Updated(*module, std::move(optimizer)), options)) {}
DataParallel::DataParallel(std::shared_ptr<Group> group, std::shared_ptr<torch::nn::Module> module,
                           const OptimizerFactory& optimizer, DataParallelOptions options)
    : impl_(std::make_unique<Impl>(std::move(group), module, Updated(*module, optimizer),
                                   options)) {}
DataParallel::~DataParallel() = default;
DataParallel::DataParallel(DataParallel&&) noexcept = default;

void DataParallel::backward(const at::Tensor& loss, int64_t samples, int64_t total_samples) {
  if (samples < 0)
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("backward with {} samples", samples),
                "the number of samples in the mean loss");
  impl_->pending.total_samples = total_samples;
  // A mean over no samples is NaN. Such a call contributes nothing, because 0 x NaN would be NaN.
  // If batch norms wait for each other, zeros go backward.
  if (samples == 0 && !(loss.defined() && SyncBatchNorm::active())) return;
  if (loss.numel() != 1)
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("the loss has {} elements", loss.numel()),
                "a scalar, such as its mean");
  if (samples > 0)
    impl_->pending.loss_sum += loss.detach().item<double>() * static_cast<double>(samples);
  impl_->pending.samples += samples;
  // The weight enters where backward starts, so that micro-batches add up without another pass
  // over the gradients.
  const double weight = total_samples > 0
                            ? static_cast<double>(samples) / static_cast<double>(total_samples)
                            : static_cast<double>(samples);
  const at::Tensor start = at::full_like(loss.detach(), weight * loss_scale());
  std::optional<AllocationScope> scope;
  if (auto memory = impl_->exchange->gradient_memory()) scope.emplace(std::move(memory));
  loss.backward(start);
  separate_gradients(impl_->state.parameters);
}

void DataParallel::last_backward(const at::Tensor& loss, int64_t samples, int64_t total_samples) {
  impl_->exchange->expect_last_backward(loss_scale());
  backward(loss, samples, total_samples);
}

StepOutcome DataParallel::step() {
  return impl_->finish([this](std::span<const int> reduced) { impl_->update(reduced); });
}

StepOutcome DataParallel::step(const std::function<at::Tensor()>& closure, int64_t samples) {
  if (impl_->shards)
    throw Error(ErrorCode::unsupported, "parallel", "a step by closure has no virtual shards",
                "an optimizer that needs no closure");
  StepOutcome first;
  bool evaluated = false;
  // The optimizer's own loop asks for losses. Each answer is the global mean, and the reduced
  // gradients are in place.
  impl_->optimizer->step([&]() -> at::Tensor {
    impl_->masters.publish();
    // Clears the gradients of the last evaluation.
    for (const auto& [name, tensor] : impl_->parameters) tensor.mutable_grad().reset();
    backward(closure(), samples);
    std::vector<at::Tensor> gradients(impl_->parameters.size());
    const StepOutcome outcome = impl_->finish([&](std::span<const int> parameters) {
      for (const int p : parameters)
        gradients[p] = impl_->parameters[p].tensor.grad().defined()
                           ? impl_->parameters[p].tensor.grad().clone()
                           : at::Tensor();
    });
    for (size_t p = 0; p < gradients.size(); ++p)
      if (gradients[p].defined()) impl_->parameters[p].tensor.mutable_grad() = gradients[p];
    if (!evaluated) first = outcome;
    evaluated = true;
    return at::scalar_tensor(outcome.nonfinite_ranks.empty() ? outcome.loss : std::nan(""),
                             at::kDouble);
  });
  impl_->masters.publish();
  for (const auto& [name, tensor] : impl_->parameters) tensor.mutable_grad().reset();
  return first;
}

bool DataParallel::is_torn() const { return impl_->exchange->is_torn(); }
void DataParallel::request_stop() { impl_->pending.wants_stop = true; }
void DataParallel::request_regroup() { impl_->pending.wants_regroup = true; }
void DataParallel::synchronise() {
  impl_->exchange->synchronise();
  impl_->masters.publish();
}
void DataParallel::sync_buffers() { impl_->broadcast(impl_->state.buffers); }
void DataParallel::sync_state() { impl_->sync_state(); }

void DataParallel::sync_masters() {
  if (impl_->exchange->shares_parameters()) impl_->exchange->sync_parameters();
}

double DataParallel::loss_scale() const { return impl_->scaler ? impl_->scaler->scale() : 1.0; }

Json DataParallel::counters() const {
  Json counters = {{"exchange", impl_->exchange->counters()}};
  if (impl_->scaler) counters["loss_scale"] = impl_->scaler->state();
  return counters;
}
void DataParallel::load_counters(const Json& counters) {
  if (counters.contains("exchange")) impl_->exchange->load_counters(counters["exchange"]);
  if (impl_->scaler && counters.contains("loss_scale"))
    impl_->scaler->load(counters["loss_scale"]);
}

std::vector<NamedTensor> DataParallel::masters() const {
  std::vector<NamedTensor> masters;
  for (size_t i = 0; i < impl_->parameters.size(); ++i)
    if (const auto& [name, tensor] = impl_->parameters[i];
        !tensor.is_same(impl_->state.parameters[i].tensor))
      masters.push_back({"master/" + name, tensor.detach()});
  return masters;
}
std::vector<NamedTensor> DataParallel::own_state() { return impl_->exchange->state(); }

const std::vector<NamedTensor>& DataParallel::updated_parameters() const {
  return impl_->parameters;
}
void DataParallel::modify_parameters(const std::function<void()>& change) {
  if (impl_->group->rank() == 0) {
    const torch::NoGradGuard no_grad;
    change();
  }
  impl_->sync_state();
}
plan::ShardRange DataParallel::shards() const { return impl_->with_shards().shards(); }
void DataParallel::end_shard() {
  Contribution& pending = impl_->pending;
  impl_->masters.take_gradients();
  impl_->with_shards().end_shard(pending);
  pending.loss_sum = 0;
  pending.samples = 0;
}
bool DataParallel::shares_parameters() const { return impl_->exchange->shares_parameters(); }

const ModuleState& DataParallel::state() const { return impl_->state; }
torch::optim::Optimizer& DataParallel::optimizer() { return *impl_->optimizer; }
Group& DataParallel::group() { return *impl_->group; }

}  // namespace trireme
