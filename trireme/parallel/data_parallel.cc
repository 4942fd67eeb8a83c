#include <torch/torch.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/parallel/data_parallel.h>
#include <cmath>

namespace trireme {
namespace {

std::map<std::string, std::string> facts_of(const ModuleState& state, const DataParallelOptions& options,
                                            torch::optim::Optimizer& optimizer) {
  std::map<std::string, std::string> facts = trireme::facts_of(state);
  facts["clip_norm"] = fmt::format("{}", options.clip_norm);
  facts["bucket bytes"] = fmt::format("{} {}", options.buckets.first_bytes, options.buckets.capacity_bytes);
  facts["optimizer"] = c10::demangle(typeid(optimizer).name());
  const auto& parts = optimizer.param_groups();
  for (size_t i = 0; i < parts.size(); ++i)
    facts[fmt::format("optimizer group {}", i)] =
        fmt::format("{} parameters, lr {}", parts[i].params().size(), parts[i].options().get_lr());
  return facts;
}

ExchangeOptions exchange_options(const DataParallelOptions& options) { return {options.clip_norm, options.gradient_norm, options.buckets}; }

}  // namespace

struct DataParallel::Impl {
  std::shared_ptr<Group> group;
  std::shared_ptr<torch::nn::Module> module;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  ModuleState state;
  std::unique_ptr<Exchange> exchange;
  Contribution pending;

  Impl(std::shared_ptr<Group> the_group, std::shared_ptr<torch::nn::Module> the_module, const OptimizerFactory& factory,
       std::shared_ptr<torch::optim::Optimizer> made, const DataParallelOptions& options)
      : group(std::move(the_group)), module(std::move(the_module)), state(state_of(*module)) {
    optimizer = made ? std::move(made) : factory(state.parameters);
    exchange = make_all_reduce_exchange(group, state.parameters, exchange_options(options));
    broadcast(state.parameters);
    broadcast(state.buffers);
  }

  void broadcast(const std::vector<NamedTensor>& tensors) {
    if (group->size() == 1) return;
    const torch::NoGradGuard no_grad;
    for (const auto& [name, tensor] : tensors) {
      const at::Tensor whole = tensor.detach().contiguous();
      group->broadcast(whole.view({-1}).view(at::kByte), 0);  // As bytes: buffers may be of types that groups do not reduce.
      if (whole.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(whole);
    }
  }

  StepOutcome finish(const Update& update) {
    const Contribution mine = std::exchange(pending, Contribution{});
    return exchange->exchange(mine, update);
  }
};

DataParallel::DataParallel(World& world, std::shared_ptr<torch::nn::Module> module, const OptimizerFactory& optimizer,
                           DataParallelOptions options)
    : DataParallel(world, module, optimizer(state_of(*module).parameters), std::move(options)) {}
DataParallel::DataParallel(World& world, std::shared_ptr<torch::nn::Module> module, std::shared_ptr<torch::optim::Optimizer> optimizer,
                           DataParallelOptions options) {
  if (!optimizer)
    throw Error(ErrorCode::invalid_argument, "parallel", "the optimizer is null", "pass one, or options such as trireme::SGD{.lr = 0.1}");
  auto group = world.make_groups(1)[0];
  world.agree("model", facts_of(state_of(*module), options, *optimizer));
  impl_ = std::make_unique<Impl>(std::move(group), std::move(module), nullptr, std::move(optimizer), options);
}
DataParallel::DataParallel(std::shared_ptr<Group> group, std::shared_ptr<torch::nn::Module> module, const OptimizerFactory& optimizer,
                           DataParallelOptions options)
    : impl_(std::make_unique<Impl>(std::move(group), std::move(module), optimizer, nullptr, options)) {}
DataParallel::~DataParallel() = default;
DataParallel::DataParallel(DataParallel&&) noexcept = default;

void DataParallel::backward(const at::Tensor& loss, int64_t samples, int64_t total_samples) {
  if (samples < 0)
    throw Error(ErrorCode::invalid_argument, "parallel", fmt::format("backward with {} samples", samples),
                "how many samples the loss is the mean of");
  impl_->pending.total_samples = total_samples;
  if (samples == 0) return;  // A mean over nothing is NaN: contributes nothing, not 0 x NaN.
  if (loss.numel() != 1)
    throw Error(ErrorCode::invalid_argument, "parallel", fmt::format("the loss has {} elements", loss.numel()),
                "a scalar, such as its mean");
  impl_->pending.loss_sum += loss.detach().item<double>() * static_cast<double>(samples);
  impl_->pending.samples += samples;
  // The weight enters where backward starts, so that micro-batches add up without another pass over the gradients.
  const double weight =
      total_samples > 0 ? static_cast<double>(samples) / static_cast<double>(total_samples) : static_cast<double>(samples);
  loss.backward(at::full_like(loss.detach(), weight));
}

StepOutcome DataParallel::step() {
  return impl_->finish([this](std::span<const int>) { impl_->optimizer->step(); });
}

StepOutcome DataParallel::step(const std::function<at::Tensor()>& closure, int64_t samples) {
  StepOutcome first;
  bool evaluated = false;
  // The optimizer's own loop asks for losses; each answer is the global mean, with the reduced gradients in place.
  impl_->optimizer->step([&]() -> at::Tensor {
    for (const auto& [name, tensor] : impl_->state.parameters) tensor.mutable_grad().reset();  // The last evaluation's answer.
    backward(closure(), samples);
    std::vector<at::Tensor> gradients(impl_->state.parameters.size());
    const StepOutcome outcome = impl_->finish([&](std::span<const int> parameters) {
      for (const int p : parameters)
        gradients[p] = impl_->state.parameters[p].tensor.grad().defined() ? impl_->state.parameters[p].tensor.grad().clone() : at::Tensor();
    });
    for (size_t p = 0; p < gradients.size(); ++p)
      if (gradients[p].defined()) impl_->state.parameters[p].tensor.mutable_grad() = gradients[p];
    if (!evaluated) first = outcome;
    evaluated = true;
    return at::scalar_tensor(outcome.nonfinite_ranks.empty() ? outcome.loss : std::nan(""), at::kDouble);
  });
  for (const auto& [name, tensor] : impl_->state.parameters) tensor.mutable_grad().reset();
  return first;
}

void DataParallel::request_stop() { impl_->pending.wants_stop = true; }
void DataParallel::sync_buffers() { impl_->broadcast(impl_->state.buffers); }
void DataParallel::sync_state() {
  impl_->broadcast(impl_->state.parameters);
  impl_->broadcast(impl_->state.buffers);
}

const ModuleState& DataParallel::state() const { return impl_->state; }
torch::optim::Optimizer& DataParallel::optimizer() { return *impl_->optimizer; }
Group& DataParallel::group() { return *impl_->group; }

}  // namespace trireme
