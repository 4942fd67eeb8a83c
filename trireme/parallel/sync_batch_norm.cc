#include <trireme/parallel/sync_batch_norm.h>

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <utility>

namespace trireme {

struct CurrentSyncBatchNorm {
  static thread_local const SyncBatchNorm* innermost;
  static std::shared_ptr<Group> group() {
    return innermost == nullptr ? nullptr : innermost->group_;
  }
};
thread_local const SyncBatchNorm* CurrentSyncBatchNorm::innermost = nullptr;

struct CurrentDeferredBatchNorm {
  static thread_local DeferredBatchNorm* innermost;
  static at::Tensor batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                               const std::optional<at::Tensor>& bias,
                               const at::Tensor& running_mean, const at::Tensor& running_var,
                               double momentum, double eps, bool cudnn_enabled);
};
thread_local DeferredBatchNorm* CurrentDeferredBatchNorm::innermost = nullptr;

namespace {

thread_local std::weak_ptr<OwnLoop> loop_that_weighs;

// The factor of this rank's gradients that comes behind backward; 1 if none does.
double weight_behind_backward() {
  const auto loop = loop_that_weighs.lock();
  return loop ? loop->weight() : 1;
}

// The type of the statistics. Half types are too coarse for sums.
at::ScalarType statistics_type(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

std::vector<int64_t> all_but_channels(const at::Tensor& input) {
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
  return dims;
}

// Shapes one value per channel so that it combines with [samples, channels, ...].
at::Tensor along_channels(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = -1;
  return values.to(input.device(), statistics_type(input)).view(shape);
}

struct Statistics {
  double count = 0;    // The number of values per channel, over all replicas.
  at::Tensor mean;     // float64 [channels]
  at::Tensor squares;  // The sums of squared deviations from the mean, float64 [channels].
};

// COLLECTIVE. Every replica gets the same bits, because each combines all parts in rank order.
Statistics statistics_over(Group& group, const at::Tensor& input) {
  const int64_t channels = input.size(1);
  const double count = channels == 0 ? 0.0 : static_cast<double>(input.numel() / channels);
  at::Tensor mine = at::zeros({1 + 2 * channels}, at::kDouble);
  if (count > 0) {
    const auto [variance, mean] = at::var_mean(input.to(statistics_type(input)),
                                               all_but_channels(input), /*correction=*/0.0);
    mine[0] = count;
    mine.narrow(0, 1, channels).copy_(mean);
    mine.narrow(0, 1 + channels, channels).copy_(variance.to(at::kDouble) * count);
  }
  at::Tensor all = at::empty({group.size(), 1 + 2 * channels}, at::kDouble);
  group.all_gather(mine, all.view({-1}));

  Statistics total;
  total.mean = at::zeros({channels}, at::kDouble);
  total.squares = at::zeros({channels}, at::kDouble);
  for (int rank = 0; rank < group.size(); ++rank) {
    const double more = all[rank][0].item<double>();
    if (more == 0) continue;
    const at::Tensor distance = all[rank].narrow(0, 1, channels) - total.mean;
    total.squares += all[rank].narrow(0, 1 + channels, channels) +
                     distance.square() * (total.count * more / (total.count + more));
    total.count += more;
    total.mean += distance * (more / total.count);
  }
  if (total.count < 2)
    throw Error(
        ErrorCode::invalid_argument, "parallel",
        fmt::format(
            "batch norm over all replicas has {} values per channel, but a variance needs 2",
            total.count),
        "a larger data.batch, or evaluation mode");
  return total;
}

void update_running(const std::optional<at::Tensor>& running, const at::Tensor& now,
                    double momentum) {
  if (running && running->defined())
    running->mul_(1 - momentum).add_(now.to(running->device(), running->scalar_type()), momentum);
}

at::Tensor normalised(const at::Tensor& input, const at::Tensor& mean,
                      const at::Tensor& inverse_deviation) {
  return (input.to(statistics_type(input)) - along_channels(mean, input))
      .mul_(along_channels(inverse_deviation, input));
}

// weight * (input - mean) / deviation + bias, where mean and deviation depend on the inputs of all
// replicas. It saves what LibTorch's own batch norm saves. Weight and bias may be missing.
class Normalise : public torch::autograd::Function<Normalise> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& mean, const at::Tensor& inverse_deviation,
                            const std::optional<at::Tensor>& given_weight,
                            const std::optional<at::Tensor>& given_bias, double count,
                            std::shared_ptr<Group> group) {
    const at::Tensor weight = given_weight.value_or(at::Tensor()),
                     bias = given_bias.value_or(at::Tensor());
    at::Tensor output = normalised(input, mean, inverse_deviation);
    if (weight.defined()) output = output * along_channels(weight, input);
    if (bias.defined()) output = output + along_channels(bias, input);
    // The output is not saved, because an activation in place may follow.
    context->save_for_backward({input, mean, inverse_deviation, weight, bias});
    context->saved_data["count"] = count;
    context->saved_data["weight"] = weight_behind_backward();
    context->saved_data["group"] =
        c10::IValue::make_capsule(c10::make_intrusive<Holder>(std::move(group)));
    return output.to(input.scalar_type());
  }

  // The chain rule of Ioffe, Szegedy 2015, "Batch normalization", section 3; its sums run
  // over all replicas.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    if (at::GradMode::is_enabled())
      throw Error(ErrorCode::unsupported, "parallel",
                  "gradients of gradients through a SyncBatchNorm",
                  "backward() without create_graph");
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &inverse_deviation = saved[2], &weight = saved[3],
                     &bias = saved[4];
    const at::Tensor output = normalised(input, saved[1], inverse_deviation);
    at::Tensor gradient = grads[0].to(output.scalar_type());
    const std::vector<int64_t> dims = all_but_channels(input);
    at::Tensor sum = gradient.sum(dims), product = (gradient * output).sum(dims);
    const at::Tensor to_bias = bias.defined() ? sum.to(bias.scalar_type()) : at::Tensor(),
                     to_weight =
                         weight.defined() ? product.to(weight.scalar_type()) : at::Tensor();
    if (weight.defined()) {
      gradient = gradient * along_channels(weight, input);
      sum = sum * weight;
      product = product * weight;
    }
    const double weight_of_rank = context->saved_data["weight"].toDouble();
    const at::Tensor means = at::cat({sum, product}).to(at::kDouble) * weight_of_rank;
    static_cast<Holder&>(*context->saved_data["group"].toCapsule()).group->all_reduce(means);
    means.div_(context->saved_data["count"].toDouble());
    if (weight_of_rank > 0) means.div_(weight_of_rank);
    const int64_t channels = input.size(1);
    at::Tensor to_input = gradient - along_channels(means.narrow(0, 0, channels), input);
    to_input.sub_(output * along_channels(means.narrow(0, channels, channels), input))
        .mul_(along_channels(inverse_deviation, input));
    return {to_input.to(input.scalar_type()), {}, {}, to_weight, to_bias, {}, {}};
  }

 private:
  struct Holder : torch::CustomClassHolder {
    explicit Holder(std::shared_ptr<Group> the_group) : group(std::move(the_group)) {}
    std::shared_ptr<Group> group;
  };
};

at::Tensor batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias,
                      const std::optional<at::Tensor>& running_mean,
                      const std::optional<at::Tensor>& running_var, bool training, double momentum,
                      double eps, bool cudnn_enabled) {
  const c10::impl::ExcludeDispatchKeyGuard once(kInterceptionKey);
  auto group = CurrentSyncBatchNorm::group();
  const bool has_statistics =
      running_mean && running_mean->defined() && running_var && running_var->defined();
  if (!group && training && has_statistics && CurrentDeferredBatchNorm::innermost != nullptr)
    return CurrentDeferredBatchNorm::batch_norm(input, weight, bias, *running_mean, *running_var,
                                                momentum, eps, cudnn_enabled);
  if (!group || !training || group->size() == 1)
    return at::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
                          cudnn_enabled);
  at::Tensor mean, inverse_deviation;
  double count = 0;
  {
    const at::NoGradGuard no_grad;
    const Statistics all = statistics_over(*group, input.detach());
    update_running(running_mean, all.mean, momentum);
    update_running(running_var, all.squares / (all.count - 1), momentum);
    mean = all.mean;
    inverse_deviation = (all.squares / all.count + eps).rsqrt();
    count = all.count;
  }
  return Normalise::apply(input, mean, inverse_deviation, weight, bias, count, std::move(group));
}

// Instance norm consists of batch norms over each single sample, which need no other replica.
at::Tensor instance_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                         const std::optional<at::Tensor>& bias,
                         const std::optional<at::Tensor>& running_mean,
                         const std::optional<at::Tensor>& running_var, bool use_input_stats,
                         double momentum, double eps, bool cudnn_enabled) {
  const c10::impl::ExcludeDispatchKeyGuard whole(kInterceptionKey);
  return at::instance_norm(input, weight, bias, running_mean, running_var, use_input_stats,
                           momentum, eps, cudnn_enabled);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("batch_norm", &batch_norm);
  library.impl("instance_norm", &instance_norm);
}

SyncBatchNorm::SyncBatchNorm(std::shared_ptr<Group> group)
    : group_(std::move(group)), previous_(CurrentSyncBatchNorm::innermost) {
  CurrentSyncBatchNorm::innermost = this;
}
void SyncBatchNorm::weigh_by(const std::shared_ptr<OwnLoop>& loop) { loop_that_weighs = loop; }
SyncBatchNorm::~SyncBatchNorm() { CurrentSyncBatchNorm::innermost = previous_; }

// The operation leaves the statistics of this micro-batch in tensors of ours, because a momentum
// of 1 forgets what was there.
at::Tensor CurrentDeferredBatchNorm::batch_norm(const at::Tensor& input,
                                                const std::optional<at::Tensor>& weight,
                                                const std::optional<at::Tensor>& bias,
                                                const at::Tensor& running_mean,
                                                const at::Tensor& running_var, double momentum,
                                                double eps, bool cudnn_enabled) {
  const at::Tensor mean = at::zeros(running_mean.sizes(), running_mean.options()),
                   variance = at::zeros(running_var.sizes(), running_var.options());
  at::Tensor output = at::batch_norm(input, weight, bias, mean, variance, /*training=*/true,
                                     /*momentum=*/1.0, eps, cudnn_enabled);
  const at::NoGradGuard no_grad;
  const double count = static_cast<double>(input.numel() / std::max<int64_t>(1, input.size(1)));
  if (count == 0) return output;
  auto& seen = innermost->of(running_mean, running_var, momentum);
  const at::Tensor distance = mean.to(at::kDouble) - seen.mean;
  seen.squares += variance.to(at::kDouble) * (count - 1) +
                  distance.square() * (seen.count * count / (seen.count + count));
  seen.count += count;
  seen.mean += distance * (count / seen.count);
  return output;
}

DeferredBatchNorm::DeferredBatchNorm() : previous_(CurrentDeferredBatchNorm::innermost) {
  CurrentDeferredBatchNorm::innermost = this;
}
DeferredBatchNorm::~DeferredBatchNorm() { CurrentDeferredBatchNorm::innermost = previous_; }

// The momentum of a layer's first micro-batch counts: that of a cumulative average depends on the
// number of batches before.
DeferredBatchNorm::Seen& DeferredBatchNorm::of(const at::Tensor& running_mean,
                                               const at::Tensor& running_var, double momentum) {
  for (Seen& seen : seen_)
    if (seen.running_mean.is_same(running_mean)) return seen;
  const at::Tensor none =
      at::zeros(running_mean.sizes(), running_mean.options().dtype(at::kDouble));
  return seen_.emplace_back(Seen{running_mean, running_var, momentum, 0, none, none.clone()});
}

void DeferredBatchNorm::commit() {
  const at::NoGradGuard no_grad;
  for (const Seen& seen : std::exchange(seen_, {})) {
    update_running(seen.running_mean, seen.mean, seen.momentum);
    update_running(seen.running_var, seen.squares / std::max(1.0, seen.count - 1), seen.momentum);
  }
}

bool SyncBatchNorm::active() { return CurrentSyncBatchNorm::innermost != nullptr; }

}  // namespace trireme
