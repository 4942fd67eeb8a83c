#include <torch/csrc/autograd/graph_task.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/parallel/data_parallel_impl.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/own_differences.h>
#include <trireme/parallel/own_faults.h>
#include <trireme/parallel/shared_random.h>
#include <trireme/parallel/step_facts.h>
#include <trireme/parallel/sync_batch_norm.h>
#include <trireme/parallel/value_sample.h>
#include <trireme/watch/phase_marks.h>
#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>

namespace trireme {
namespace {

constexpr int64_t kStepsBetweenDigests = 64;

}  // namespace

DataParallel::Impl::Impl(std::shared_ptr<Group> the_group,
                         std::shared_ptr<torch::nn::Module> the_module, UpdatedTensors updated,
                         const DataParallelOptions& options)
    : UpdatedTensors(std::move(updated)),
      group(std::move(the_group)),
      module(std::move(the_module)),
      forms(*module, state.parameters),
      skip_nonfinite(options.skip_nonfinite) {
  for (const auto& [name, tensor] : parameters)
    numbers.emplace(tensor.unsafeGetTensorImpl(), numbers.size() + 1);
  const Planner planner = agree_on_plan(options);
  make_exchange(options, planner);
  if (options.offload.name() != "none" && !shared) offload_own(options.offload);
  sync_state();
}

ReproducibleExchange& DataParallel::Impl::with_shards() const {
  if (!shards)
    throw Error(ErrorCode::invalid_argument, "parallel", "the replica has no virtual shards",
                "DataParallelOptions::virtual_shards");
  return *shards;
}

Error DataParallel::Impl::refusal(int rank, ParameterChange found) const {
  const Error error = change_error(rank, found, names_of(state.parameters));
  return own_loop ? with_step(error, own_steps + 1) : error;
}

void DataParallel::Impl::refuse(ParameterChange mine) const {
  const at::Tensor own = at::tensor({static_cast<int64_t>(mine.change), int64_t{mine.parameter}});
  const at::Tensor all = at::zeros({group->size(), 2}, at::kLong);
  group->all_gather(own, all.view({-1}));
  for (int rank = 0; rank < group->size(); ++rank)
    if (const auto change = static_cast<Change>(all[rank][0].item<int64_t>());
        change != Change::none)
      throw refusal(rank, {change, static_cast<int>(all[rank][1].item<int64_t>())});
}

void DataParallel::Impl::refuse_changes() const {
  const ParameterChange form = forms.find_new_form();
  const bool looks_further = form.change == Change::none && shared != nullptr;
  refuse(looks_further ? shared->find_change() : form);
}

void DataParallel::Impl::sync_state() {
  // Memory and messages have the old form's size.
  refuse(forms.find_new_form());
  forget_writes();
  if (shared) {
    broadcast(kept_in_16_bits());
    if (group->rank() == 0) masters.adopt();
    shared->sync_parameters();
  } else {
    broadcast(state.parameters);
    masters.adopt();
    if (offloaded) offloaded->leave();
  }
  broadcast(state.buffers);
}

void DataParallel::Impl::update(std::span<const int> reduced) {
  watch::mark_phase(Phase::optimizer);
  if (offloaded) {
    updated_elements += offloaded->update(reduced);
    return;
  }
  if (own_update) {
    updated_elements += fused::update_alone(*own_update, parameters, reduced);
    return;
  }
  optimizer->step();
  for (const auto& param_group : optimizer->param_groups())
    for (const at::Tensor& tensor : param_group.params())
      if (tensor.grad().defined()) updated_elements += tensor.numel();
}

void DataParallel::Impl::tell_unused(const StepOutcome& outcome) {
  if (told_unused || !outcome.updated) return;
  told_unused = true;
  if (outcome.unused.empty() || group->rank() != 0) return;
  std::string names;
  for (const int p : outcome.unused)
    names +=
        fmt::format("{}'{}'", names.empty() ? "" : ", ", parameters[static_cast<size_t>(p)].name);
  log_warning(
      "the loss of the first step does not depend on {} on any replica: they are not trained",
      names);
}

// It covers train() or eval(), the optimizer's options, and the parameters: one value of each, and
// in some steps all values.
uint64_t DataParallel::Impl::digest_for_own_loop() const {
  if (!own_loop || group->size() == 1) return 0;
  uint64_t value = hash_of_modes(*module);
  for (const auto& [name, hash] : hashes_of_options(*optimizer)) value = mix64(value, hash);
  if (is_digest_due())
    value = mix64(value, digest_of(parameters));
  else if (compares_parameters())
    value = mix64(value, sample_of(parameters));
  return std::max<uint64_t>(1, value);
}

// Replicas that share their parameters, or have other ones for some steps, have other checks or
// none.
bool DataParallel::Impl::compares_parameters() const { return !shared && !apart && !shards; }

bool DataParallel::Impl::is_digest_due() const {
  return compares_parameters() && (own_steps < 2 || own_steps % kStepsBetweenDigests == 0);
}

void DataParallel::Impl::look_for_own_loop(World& world, int the_number, bool may_train_apart) {
  own_loop = world.own_loop();
  number = the_number;
  draws = std::make_unique<EqualDraws>(device);
  past_engine = std::make_unique<UpdatesPastEngine>(state.parameters);
  own_backward = std::make_unique<GradientWatch>(tensors_of(state.parameters),
                                                 [this](int) { look_at_own_backward(); });
  own_backward->arm(!may_train_apart);
  before_leave = std::make_shared<const std::function<void()>>([this] {
    tell_at_the_end();
    if (const ParameterChange found = find_past_engine(); found.change != Change::none)
      throw change_error(group->rank(), found, {});
  });
  own_loop->before_leave.emplace_back(before_leave);
  if (group->size() == 1 || may_train_apart) return;
  apart_from_engines = TrainedApart::of_process();
  apart_from_engines->know(state.parameters);
}

// Another engine takes this one's place, and has the parameters at the end.
void DataParallel::Impl::forget_loop() {
  own_backward.reset();
  own_loop.reset();
}

void DataParallel::Impl::enter(Phase phase) const {
  if (own_loop) own_loop->enter(phase);
}

void DataParallel::Impl::end_own_step() const {
  enter(Phase::optimizer);  // The update is done, and the step has not ended.
  if (own_loop && own_loop->end_step(teller)) enter(Phase::forward);
}

void DataParallel::Impl::look_at_own_step(const StepOutcome& outcome) {
  if (!own_loop) return;
  ++own_steps;
  if (apart_from_engines) apart_from_engines->end_step();
  const bool is_finite = outcome.nonfinite_ranks.empty();
  if (outcome.samples == 0 && !outcome.stop && !outcome.end && !outcome.regroup && is_finite)
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("step {}: step() without a loss: no rank has called "
                            "backward(loss, samples) since the step before",
                            own_steps),
                "step(loss, samples). After loss.backward() alone, Trireme does not know of how "
                "many samples the gradients are");
  // Scaled gradients overflow now and then.
  if (is_finite && (!outcome.nonfinite_gradients || scaler)) return;
  const std::string what =
      is_finite ? fmt::format("step {}: the gradients are NaN or infinite", own_steps)
                : fmt::format("step {}: the loss of rank {} is NaN or infinite", own_steps,
                              fmt::join(outcome.nonfinite_ranks, ", "));
  if (!skip_nonfinite)
    throw Error(ErrorCode::internal, "parallel", what + ": nothing was updated",
                "a look at that loss and its data, or a smaller learning rate. "
                "DataParallelOptions::skip_nonfinite goes on without the step");
  if (group->rank() == 0)
    log_warning("{}: nothing was updated (StepOutcome::nonfinite_ranks)", what);
}

// The backward() of one engine may reach the parameters of another one, as in a GAN. It is none of
// the loop's own.
void DataParallel::Impl::look_at_own_backward() {
  if (own_loop->has_left || own_loop->backwards_of_replicas > 0) return;
  const int task = torch::autograd::get_current_graph_task_id();
  if (std::exchange(reached_by, task) == task) return;
  past_engine->look();
  if (past_engine->are_too_many())
    throw change_error(
        group->rank(),
        {Change::past_replica, static_cast<int>(own_steps) + past_engine->count() + 1}, {});
}

// A loop that has made steps may write its parameters behind the last one. One that trains nothing
// may load some weights between its backward passes, for samples that are hard to tell.
ParameterChange DataParallel::Impl::find_past_engine() const {
  constexpr int kWritesOfATraining = 3;
  if (own_steps > 0) return {};
  past_engine->look();
  if (past_engine->count() < kWritesOfATraining) return {};
  return {Change::past_replica, past_engine->count()};
}

void DataParallel::Impl::forget_writes() const {
  if (past_engine) past_engine->forget();
}

// Local steps keep replicas apart.
void DataParallel::Impl::tell_at_the_end() const {
  if (group->size() == 1 || apart) return;
  own_loop->facts_at_the_end[fmt::format("DataParallel {}", number)] =
      parameters_at_the_end(state.parameters, own_steps, alike_in);
}

DataParallel::Impl::~Impl() {
  if (!own_loop || own_loop->has_left || std::uncaught_exceptions() > 0) return;
  try {
    tell_at_the_end();  // On all ranks, because leave() compares if there is anything to compare.
    if (const ParameterChange found = find_past_engine(); found.change != Change::none) {
      const auto [what, remedy] = parts_of(change_error(group->rank(), found, {}));
      log_error("{}; try: {}", what, remedy);
    }
  } catch (const std::exception& error) {
    log_error("the parameters at the end cannot be read: {}", brief(error));
  }
}

void DataParallel::Impl::refuse_on_all(ParameterChange found) {
  pending = {.change = found};
  finish([](std::span<const int>) {});
  throw refusal(group->rank(), found);
}

StepOutcome DataParallel::Impl::exchange_facts(const Contribution& mine, const Update& update) {
  try {
    const bool compares_now = mine.digest != 0 && is_digest_due();
    const StepOutcome outcome = exchange->exchange(mine, update);
    if (compares_now) alike_in = own_steps + 1;
    return outcome;
  } catch (const ErrorOfAllRanks& error) {
    if (!own_loop) throw;
    const OwnPlace place{.steps = own_steps, .alike_in = alike_in};
    if (group->size() > 1)
      refuse_differences(*group, place, facts_of({}, *module, *optimizer, parameters));
    if (dynamic_cast<const OtherDigests*>(&error) && compares_parameters())
      refuse_other_parameters(*group, place, parameters);
    throw ErrorOfAllRanks(with_step(error, own_steps + 1));
  }
}

StepOutcome DataParallel::Impl::finish(const Update& update) {
  if (own_loop) {
    own_loop->require_not_left("step()");
    own_loop->require_elastic();
  }
  enter(Phase::exchange);
  Contribution mine = std::exchange(pending, Contribution{});
  mine.digest = digest_for_own_loop();
  if (own_loop && own_loop->is_elastic) {
    mine.wants_end = own_loop->wants_stop();
    mine.wants_regroup = mine.wants_regroup || own_loop->world->regroup_wanted();
  }
  if (scaler) mine.gradient_scale = scaler->scale();
  if (mine.change.change == Change::none) mine.change = forms.find_change();
  if (apart_from_engines && mine.change.change == Change::none)
    mine.change = apart_from_engines->find_change();
  mine.groups = hash_of_groups();
  separate_gradients(state.parameters);
  masters.take_gradients();
  if (offloaded && offloaded->gradients()) offloaded->gradients()->keep_all();
  const Traffic before = std::exchange(traffic, std::nullopt).value_or(group->traffic());
  updated_elements = 0;
  StepOutcome outcome = exchange_facts(mine, update);
  const Traffic sent = group->traffic() - before;
  outcome.operations = sent.operations;
  outcome.bytes_sent = sent.bytes_sent;
  outcome.updated_elements += updated_elements;
  masters.publish();
  forget_writes();
  if (draws && number == 0 && group->size() > 1) draws->look(*group, own_steps + 1);
  tell_unused(outcome);
  if (own_loop && own_loop->is_elastic) {
    own_loop->stop = own_loop->stop || outcome.end;
    own_loop->regroup = own_loop->regroup || outcome.regroup;
  }
  look_at_own_step(outcome);
  if (scaler && outcome.samples > 0 && outcome.nonfinite_ranks.empty())
    scaler->update(outcome.nonfinite_gradients);
  return outcome;
}

namespace {

struct OfReplicas {
  std::mutex mutex;
  std::vector<std::weak_ptr<torch::optim::Optimizer>> optimizers;
};
OfReplicas& of_replicas() {
  static OfReplicas all;
  return all;
}

}  // namespace

bool is_of_a_replica(const torch::optim::Optimizer& optimizer) {
  auto& [mutex, optimizers] = of_replicas();
  const std::lock_guard lock(mutex);
  return std::ranges::any_of(optimizers,
                             [&](const auto& each) { return each.lock().get() == &optimizer; });
}

struct DataParallel::Seat {
  std::unique_ptr<Impl> impl;
  // Makes the engine of the next generation on the same tensors; null without a World.
  std::shared_ptr<const std::function<void()>> rebind = {};
};

DataParallel::Impl& DataParallel::impl() const { return *seat_->impl; }

std::unique_ptr<DataParallel::Seat> DataParallel::join(World& world,
                                                       std::shared_ptr<torch::nn::Module> module,
                                                       const UpdatedTensors& updated,
                                                       DataParallelOptions options) {
  if (!updated.optimizer)
    throw Error(ErrorCode::invalid_argument, "parallel", "the optimizer is null",
                "pass one, or options such as trireme::SGD{.lr = 0.1}");
  {
    auto& [mutex, optimizers] = of_replicas();
    const std::lock_guard lock(mutex);
    std::erase_if(optimizers, [](const auto& each) { return each.expired(); });
    optimizers.push_back(updated.optimizer);
  }
  auto seat = std::make_unique<Seat>();
  const std::shared_ptr<World::OwnLoop> loop = world.own_loop();
  const auto bind = [loop, module = std::move(module), updated, options = std::move(options),
                     number = loop->replicas++, seat = seat.get()] {
    World& now = *loop->world;
    if (seat->impl) seat->impl->forget_loop();
    seat->impl.reset();  // The tensors are home then.
    std::shared_ptr<Group> group = now.make_groups(1)[0];
    DataParallelOptions own = options;
    own.state_follows = now.identity().generation > 0;  // From the Checkpoint of the loop.
    auto impl = std::make_unique<Impl>(std::move(group), module, updated, own);
    impl->look_for_own_loop(now, number, options.trains_apart);
    SyncBatchNorm::weigh_by(nullptr);
    draw_other_numbers(impl->device, now.rank(), /*number=*/0);
    seat->impl = std::move(impl);
  };
  bind();
  listen_for_faults(world);
  seat->rebind = std::make_shared<const std::function<void()>>(bind);
  loop->rebind.emplace_back(seat->rebind);
  return seat;
}

DataParallel::DataParallel(World& world, std::shared_ptr<torch::nn::Module> module,
                           const OptimizerFactory& optimizer, DataParallelOptions options)
    : seat_(join(world, module, UpdatedTensors(*module, optimizer), std::move(options))) {}
DataParallel::DataParallel(World& world, std::shared_ptr<torch::nn::Module> module,
                           std::shared_ptr<torch::optim::Optimizer> optimizer,
                           DataParallelOptions options)
    : seat_(join(world, module, UpdatedTensors(*module, std::move(optimizer)),
                 std::move(options))) {}
DataParallel::DataParallel(std::shared_ptr<Group> group, std::shared_ptr<torch::nn::Module> module,
                           const OptimizerFactory& optimizer, DataParallelOptions options)
    : seat_(std::make_unique<Seat>(Seat{std::make_unique<Impl>(
          std::move(group), module, UpdatedTensors(*module, optimizer), options)})) {}
DataParallel::~DataParallel() = default;
DataParallel::DataParallel(DataParallel&&) noexcept = default;

void DataParallel::backward(const at::Tensor& loss, int64_t samples, int64_t total_samples) {
  if (samples < 0)
    impl().refuse_on_all(
        {Change::negative_samples,
         static_cast<int>(std::max<int64_t>(samples, std::numeric_limits<int>::min()))});
  impl().pending.total_samples = total_samples;
  // A mean over no samples is NaN. Such a call contributes nothing, because 0 x NaN would be NaN.
  // If batch norms wait for each other, zeros go backward.
  if (samples == 0 && !(loss.defined() && SyncBatchNorm::active())) return;
  if (loss.numel() != 1) impl().refuse_on_all({Change::no_scalar, static_cast<int>(loss.numel())});
  if (samples > 0)
    impl().pending.loss_sum += loss.detach().item<double>() * static_cast<double>(samples);
  impl().pending.samples += samples;
  // The weight enters where backward starts, so that micro-batches add up without another pass
  // over the gradients.
  const double weight = total_samples > 0
                            ? static_cast<double>(samples) / static_cast<double>(total_samples)
                            : static_cast<double>(samples);
  const at::Tensor start = at::full_like(loss.detach(), weight * loss_scale());
  impl().enter(Phase::backward);
  std::optional<AllocationScope> scope;
  if (auto memory = impl().exchange->gradient_memory()) scope.emplace(std::move(memory));
  World::OwnLoop* const loop = impl().own_loop.get();
  if (loop) ++loop->backwards_of_replicas;
  const std::shared_ptr<void> until_the_end(nullptr, [loop](void*) {
    if (loop) --loop->backwards_of_replicas;
  });
  loss.backward(start);
  separate_gradients(impl().state.parameters);
}

void DataParallel::last_backward(const at::Tensor& loss, int64_t samples, int64_t total_samples) {
  impl().traffic = impl().group->traffic();
  impl().exchange->expect_last_backward(loss_scale());
  backward(loss, samples, total_samples);
}

StepOutcome DataParallel::step() {
  const StepOutcome outcome =
      impl().finish([this](std::span<const int> reduced) { impl().update(reduced); });
  impl().end_own_step();
  return outcome;
}

StepOutcome DataParallel::step(const std::function<at::Tensor()>& closure, int64_t samples) {
  if (impl().shards)
    throw Error(ErrorCode::unsupported, "parallel", "a step by closure has no virtual shards",
                "an optimizer that needs no closure");
  StepOutcome first;
  bool evaluated = false;
  // The optimizer's own loop asks for losses. Each answer is the global mean, and the reduced
  // gradients are in place.
  impl().optimizer->step([&]() -> at::Tensor {
    impl().masters.publish();
    // Clears the gradients of the last evaluation.
    for (const auto& [name, tensor] : impl().parameters) tensor.mutable_grad().reset();
    backward(closure(), samples);
    std::vector<at::Tensor> gradients(impl().parameters.size());
    const StepOutcome outcome = impl().finish([&](std::span<const int> parameters) {
      for (const int p : parameters)
        gradients[p] = impl().parameters[p].tensor.grad().defined()
                           ? impl().parameters[p].tensor.grad().clone()
                           : at::Tensor();
    });
    for (size_t p = 0; p < gradients.size(); ++p)
      if (gradients[p].defined()) impl().parameters[p].tensor.mutable_grad() = gradients[p];
    if (!evaluated) first = outcome;
    evaluated = true;
    return at::scalar_tensor(outcome.nonfinite_ranks.empty() ? outcome.loss : std::nan(""),
                             at::kDouble);
  });
  impl().masters.publish();
  for (const auto& [name, tensor] : impl().parameters) tensor.mutable_grad().reset();
  impl().end_own_step();
  return first;
}

bool DataParallel::is_torn() const { return impl().shared && impl().shared->is_torn(); }
void DataParallel::request_stop() { impl().pending.wants_stop = true; }
void DataParallel::request_regroup() { impl().pending.wants_regroup = true; }
void DataParallel::synchronise() {
  if (impl().apart) impl().apart->synchronise();
  impl().forget_writes();
  impl().masters.publish();
}
void DataParallel::sync_buffers() { impl().broadcast(impl().state.buffers); }
void DataParallel::sync_state() { impl().sync_state(); }

void DataParallel::sync_masters() {
  if (impl().shared) impl().shared->sync_parameters();
}

std::vector<Block> DataParallel::paged(const std::vector<Block>& blocks) {
  if (impl().shared) return impl().shared->paged(blocks);
  return impl().offloaded ? impl().offloaded->paged(blocks) : blocks;
}

double DataParallel::loss_scale() const { return impl().scaler ? impl().scaler->scale() : 1.0; }

Json DataParallel::counters() const {
  Json counters = {{"exchange", impl().exchange->counters()}};
  if (impl().scaler) counters["loss_scale"] = impl().scaler->state();
  return counters;
}
void DataParallel::load_counters(const Json& counters) {
  if (counters.contains("exchange")) impl().exchange->load_counters(counters["exchange"]);
  if (impl().scaler && counters.contains("loss_scale"))
    impl().scaler->load(counters["loss_scale"]);
}

std::vector<NamedTensor> DataParallel::masters() const {
  std::vector<NamedTensor> masters = impl().masters_by_parameter();
  for (NamedTensor& master : masters) master.name = "master/" + master.name;
  return masters;
}
std::vector<NamedTensor> DataParallel::own_state() {
  std::vector<NamedTensor> own;
  for (const StateEntry& entry : impl().exchange->state())
    own.push_back({entry.slice.tensor, entry.tensor});
  return own;
}
StateView DataParallel::state_view() {
  StateView view;
  append(view, impl().state.parameters, StateKind::parameter);
  append(view, impl().state.buffers, StateKind::buffer);
  append(view, impl().masters_by_parameter(), StateKind::master);
  const StateView own = impl().exchange->state();
  view.insert(view.end(), own.begin(), own.end());
  return view;
}

const std::vector<NamedTensor>& DataParallel::updated_parameters() const {
  return impl().parameters;
}
void DataParallel::check_parameters() const { impl().refuse_changes(); }
void DataParallel::modify_parameters(const std::function<void()>& change) {
  impl().refuse_changes();
  if (impl().group->rank() == 0) {
    const torch::NoGradGuard no_grad;
    change();
  }
  impl().sync_state();
}
plan::ShardRange DataParallel::shards() const { return impl().with_shards().shards(); }
void DataParallel::end_shard() {
  Contribution& pending = impl().pending;
  impl().masters.take_gradients();
  impl().with_shards().end_shard(pending);
  pending.loss_sum = 0;
  pending.samples = 0;
}
const plan::EnginePlan& DataParallel::plan() const { return impl().plan; }
bool DataParallel::shares_parameters() const { return impl().shared != nullptr; }

const ModuleState& DataParallel::state() const { return impl().state; }
torch::optim::Optimizer& DataParallel::optimizer() { return *impl().optimizer; }
Group& DataParallel::group() { return *impl().group; }

}  // namespace trireme
