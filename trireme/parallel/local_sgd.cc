#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/config/value.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/local_sgd.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/parallel/step_facts.h>
#include <cmath>

namespace trireme {
namespace {

class StepsApart : public LocalSgdExchange {
 public:
  StepsApart(std::shared_ptr<Group> group, std::vector<NamedTensor> parameters,
             std::shared_ptr<torch::optim::Optimizer> optimizer,
             std::unique_ptr<Exchange> together, const ExchangeOptions& exchange_options,
             LocalSgdOptions options)
      : group_(std::move(group)),
        parameters_(std::move(parameters)),
        optimizer_(std::move(optimizer)),
        together_(std::move(together)),
        clip_norm_(exchange_options.clip_norm),
        want_norm_(exchange_options.want_norm || exchange_options.clip_norm > 0),
        options_(options),
        facts_(group_->size(), parameters_) {
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (parameters_[i].tensor.requires_grad()) trainable_.push_back(static_cast<int>(i));
  }

  StepOutcome exchange(const Contribution& mine, const Update& update) override {
    StepOutcome outcome =
        steps_ < options_.after ? together_->exchange(mine, update) : apart(mine, update);
    if (!outcome.updated) return outcome;
    const bool was_apart = ++steps_ > options_.after;
    if (was_apart && ++steps_apart_ == options_.steps) synchronise();
    return outcome;
  }

  void synchronise() override {
    if (steps_apart_ == 0) return;
    steps_apart_ = 0;
    std::vector<at::Tensor> tensors;
    for (const int parameter : trainable_)
      tensors.push_back(parameters_[parameter].tensor.detach());
    average(tensors);
    if (options_.momentum) average_momentum();
  }

  StateView state() override { return together_->state(); }
  Json counters() const override { return {{"steps", steps_}}; }
  void load_counters(const Json& counters) override {
    steps_ = counters.value("steps", int64_t{0});
    steps_apart_ = 0;  // Replicas are equal when they are saved.
  }

 private:
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const int parameter : trainable_) all.push_back(parameters_[parameter].tensor.grad());
    return all;
  }

  StepOutcome apart(const Contribution& mine, const Update& update) {
    const std::vector<at::Tensor> own = gradients();
    const double norm = want_norm_ ? norm_of(own) : 0;
    std::vector<bool> has_gradient(parameters_.size(), false);
    for (const int parameter : trainable_)
      has_gradient[static_cast<size_t>(parameter)] =
          parameters_[parameter].tensor.grad().defined();
    const at::Tensor values = at::zeros({facts_.size()}, at::kDouble);
    facts_.write(mine, group_->rank(), has_gradient, std::isfinite(norm), values);
    group_->all_reduce(values);
    const StepFacts::Summed facts = facts_.read(values);
    StepOutcome outcome = facts.outcome;
    if (outcome.nonfinite_ranks.empty() && !outcome.nonfinite_gradients && outcome.samples > 0) {
      if (mine.samples > 0) {
        // Turns the gradient into the mean over this replica's samples, for any
        // weight of backward.
        const double weight = facts.weighted ? static_cast<double>(mine.samples) /
                                                   static_cast<double>(mine.total_samples)
                                             : static_cast<double>(mine.samples);
        const double factor = 1 / (weight * mine.gradient_scale);
        if (want_norm_) outcome.gradient_norm = norm * factor;
        multiply(own, factor * clip_factor(norm * factor, clip_norm_));
        update(trainable_);
      }
      outcome.updated = true;
    }
    for (const int parameter : trainable_) parameters_[parameter].tensor.mutable_grad().reset();
    return outcome;
  }

  // Each tensor becomes its mean over all replicas.
  void average(const std::vector<at::Tensor>& tensors) const {
    const at::NoGradGuard no_grad;
    std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
    for (const at::Tensor& tensor : tensors)
      if (tensor.is_floating_point()) by_type[tensor.scalar_type()].push_back(tensor);
    for (const auto& [type, alike] : by_type) {
      std::vector<at::Tensor> parts;
      for (const at::Tensor& tensor : alike) parts.push_back(tensor.reshape({-1}));
      const at::Tensor flat = at::cat(parts);
      group_->all_reduce(flat, ReduceOp::mean);
      int64_t place = 0;
      for (const at::Tensor& tensor : alike) {
        tensor.copy_(flat.narrow(0, place, tensor.numel()).view(tensor.sizes()));
        place += tensor.numel();
      }
    }
  }

  // A replica that has had no samples may have no momentum yet. Then all replicas keep their own
  // until the next averaging.
  void average_momentum() const {
    const OptimizerState state = state_of(*optimizer_, parameters_);
    if (state.kind == "opaque")
      throw Error(ErrorCode::unsupported, "parallel",
                  "strategy.local_momentum with an optimizer whose state has no names",
                  "strategy.local_momentum=false");
    std::vector<at::Tensor> tensors;
    double elements = 0;
    for (const auto& [name, tensor] : state.tensors) {
      tensors.push_back(tensor.detach());
      elements += static_cast<double>(tensor.numel());
    }
    const at::Tensor least = at::full({1}, elements, at::kDouble), most = least.clone();
    group_->all_reduce(least, ReduceOp::min);
    group_->all_reduce(most, ReduceOp::max);
    if (at::equal(least, most)) average(tensors);
  }

  std::shared_ptr<Group> group_;
  std::vector<NamedTensor> parameters_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<Exchange> together_;
  double clip_norm_;
  bool want_norm_;
  LocalSgdOptions options_;
  StepFacts facts_;
  std::vector<int> trainable_;
  int64_t steps_ = 0;        // Updates so far.
  int64_t steps_apart_ = 0;  // Updates since the last averaging.
};

}  // namespace

void check(const LocalSgdOptions& options) { config::check_values(options); }

std::unique_ptr<LocalSgdExchange> make_local_sgd_exchange(
    std::shared_ptr<Group> group, std::vector<NamedTensor> parameters,
    std::shared_ptr<torch::optim::Optimizer> optimizer, std::unique_ptr<Exchange> together,
    const ExchangeOptions& exchange_options, LocalSgdOptions options) {
  check(options);
  return std::make_unique<StepsApart>(std::move(group), std::move(parameters),
                                      std::move(optimizer), std::move(together), exchange_options,
                                      options);
}

}  // namespace trireme
