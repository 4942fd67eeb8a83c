#include <torch/torch.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/exchange.h>
#include <cmath>
#include <numeric>

namespace trireme {
namespace {

// Facts of the step that travel behind the last bucket's gradients, so that they cost no message of their own:
// loss sum, samples, samples of ranks that know the total, stop, then for each rank whether its loss is finite, then for each parameter
// whether it has a gradient.
struct TailLayout {
  int world_size = 1;
  int parameters = 0;
  static constexpr int kLoss = 0, kSamples = 1, kOfKnownTotal = 2, kStop = 3, kFixed = 4;
  int nonfinite(int rank) const { return kFixed + rank; }
  int used(int parameter) const { return kFixed + world_size + parameter; }
  int size() const { return kFixed + world_size + parameters; }
};

bool carries_tail(plan::DType dtype) { return dtype == plan::DType::float32 || dtype == plan::DType::float64; }

class AllReduceExchange : public Exchange {
 public:
  AllReduceExchange(std::shared_ptr<Group> group, std::vector<NamedTensor> parameters, ExchangeOptions options)
      : group_(std::move(group)), parameters_(std::move(parameters)), options_(std::move(options)) {
    const std::vector<plan::TensorSpec> specs = specs_of(parameters_);
    plan_ = plan::plan_buckets(specs, options_.buckets);
    plan::check(plan_, specs);
    layout_ = {group_->size(), static_cast<int>(parameters_.size())};
    for (const auto& bucket : plan_.buckets)
      for (const int parameter : bucket.params) trainable_.push_back(parameter);
    for (size_t parameter = 0; parameter < specs.size(); ++parameter)
      if (!specs[parameter].trainable) frozen_.push_back(static_cast<int>(parameter));
    if (group_->size() > 1) allocate();
  }

  StepOutcome exchange(const Contribution& mine, const Update& update) override {
    refuse_newly_trainable();
    StepOutcome outcome = group_->size() > 1 ? reduce(mine) : alone(mine);
    if (outcome.nonfinite_ranks.empty() && outcome.samples > 0) {
      scale(weighted_ ? 1.0 : 1.0 / static_cast<double>(outcome.samples), outcome);
      if (!outcome.nonfinite_gradients) {
        update(trainable_);
        outcome.updated = true;
      }
    }
    // Undefined, so that the next backward leaves its gradients where it makes them: nothing is zeroed.
    for (const int parameter : trainable_) parameters_[parameter].tensor.mutable_grad().reset();
    return outcome;
  }

 private:
  void allocate() {
    for (const auto& bucket : plan_.buckets) {
      const bool last = &bucket == &plan_.buckets.back();
      const int64_t tail = last && carries_tail(bucket.dtype) ? layout_.size() : 0;
      at::Tensor flat = at::zeros({bucket.elements + tail}, at::TensorOptions().dtype(to_torch(bucket.dtype)));
      if (tail > 0) tail_ = flat.narrow(0, bucket.elements, tail);
      flats_.push_back(flat);
    }
    // Half precision could not count samples: then the facts travel apart.
    if (!tail_.defined()) {
      tail_ = at::zeros({layout_.size()}, at::kFloat);
      flats_.push_back(tail_);
    }
  }

  // A parameter that was frozen when the engine was made is not exchanged: with a gradient of its own, replicas would drift apart.
  void refuse_newly_trainable() const {
    for (const int parameter : frozen_) {
      if (!parameters_[parameter].tensor.grad().defined()) continue;
      throw Error(ErrorCode::invalid_argument, "parallel",
                  fmt::format("parameter '{}' has a gradient, but it was frozen when DataParallel was made", parameters_[parameter].name),
                  "make a new DataParallel after requires_grad_(true)");
    }
  }

  StepOutcome alone(const Contribution& mine) {
    StepOutcome outcome;
    weighted_ = mine.total_samples > 0;
    outcome.samples = mine.samples;
    outcome.loss = mine.samples > 0 ? mine.loss_sum / static_cast<double>(mine.samples) : 0;
    outcome.stop = mine.wants_stop;
    if (!std::isfinite(mine.loss_sum)) outcome.nonfinite_ranks = {group_->rank()};
    return outcome;
  }

  StepOutcome reduce(const Contribution& mine) {
    const torch::NoGradGuard no_grad;
    fill_tail(mine);
    std::vector<WorkPtr> works;
    for (size_t i = 0; i < flats_.size(); ++i) {
      if (i < plan_.buckets.size()) pack(plan_.buckets[i], flats_[i]);
      works.push_back(group_->all_reduce_async(flats_[i]));
    }
    for (const WorkPtr& work : works) work->wait();
    const at::Tensor tail = tail_.to(at::kDouble);
    const double* facts = tail.const_data_ptr<double>();
    for (size_t i = 0; i < plan_.buckets.size(); ++i) unpack(plan_.buckets[i], flats_[i], facts);
    return read_tail(facts);
  }

  void fill_tail(const Contribution& mine) {
    at::Tensor facts = at::zeros({layout_.size()}, at::kDouble);
    double* values = facts.mutable_data_ptr<double>();
    const bool finite = std::isfinite(mine.loss_sum);
    values[TailLayout::kLoss] = finite ? mine.loss_sum : 0;
    values[TailLayout::kSamples] = static_cast<double>(mine.samples);
    values[TailLayout::kOfKnownTotal] = mine.total_samples > 0 ? static_cast<double>(mine.samples) : 0;
    values[TailLayout::kStop] = mine.wants_stop;
    values[layout_.nonfinite(group_->rank())] = !finite;
    for (const int parameter : trainable_) values[layout_.used(parameter)] = parameters_[parameter].tensor.grad().defined();
    tail_.copy_(facts);
  }

  StepOutcome read_tail(const double* facts) {
    // A rank without samples has no say: it may not have called backward() at all.
    const double known = facts[TailLayout::kOfKnownTotal];
    weighted_ = known > 0;
    if (weighted_ && known != facts[TailLayout::kSamples])
      throw Error(ErrorCode::invalid_argument, "parallel", "some ranks gave backward() total_samples and others did not",
                  "total_samples on all ranks, or on none");
    StepOutcome outcome;
    outcome.samples = std::llround(facts[TailLayout::kSamples]);
    outcome.loss = outcome.samples > 0 ? facts[TailLayout::kLoss] / static_cast<double>(outcome.samples) : 0;
    outcome.stop = facts[TailLayout::kStop] > 0;
    for (int rank = 0; rank < layout_.world_size; ++rank)
      if (facts[layout_.nonfinite(rank)] > 0) outcome.nonfinite_ranks.push_back(rank);
    return outcome;
  }

  void pack(const plan::Bucket& bucket, const at::Tensor& flat) const {
    for (size_t i = 0; i < bucket.params.size(); ++i) {
      const at::Tensor& parameter = parameters_[bucket.params[i]].tensor;
      const at::Tensor place = flat.narrow(0, bucket.offsets[i], parameter.numel());
      if (parameter.grad().defined())
        place.copy_(parameter.grad().reshape({-1}));
      else
        place.zero_();
    }
  }

  // The reduced gradients are read by the update where they lie.
  void unpack(const plan::Bucket& bucket, const at::Tensor& flat, const double* facts) {
    for (size_t i = 0; i < bucket.params.size(); ++i) {
      const at::Tensor& parameter = parameters_[bucket.params[i]].tensor;
      if (facts[layout_.used(bucket.params[i])] > 0)
        parameter.mutable_grad() = flat.narrow(0, bucket.offsets[i], parameter.numel()).view(parameter.sizes());
      else
        parameter.mutable_grad().reset();
    }
  }

  // Multiplies all gradients by `factor`, then clips them; one pass over memory for both, none where neither is needed.
  void scale(double factor, StepOutcome& outcome) const {
    const torch::NoGradGuard no_grad;
    if (options_.clip_norm > 0 || options_.want_norm) {
      double squares = 0;
      for (const int parameter : trainable_) {
        const at::Tensor& gradient = parameters_[parameter].tensor.grad();
        if (!gradient.defined()) continue;
        const double norm = at::linalg_vector_norm(gradient, 2, std::nullopt, false, at::kDouble).item<double>();
        squares += norm * norm;
      }
      outcome.gradient_norm = std::sqrt(squares) * factor;
      outcome.nonfinite_gradients = !std::isfinite(outcome.gradient_norm);
      // As torch.nn.utils.clip_grad_norm_, which adds 1e-6 to the norm.
      if (options_.clip_norm > 0 && outcome.gradient_norm > options_.clip_norm)
        factor *= options_.clip_norm / (outcome.gradient_norm + 1e-6);
    }
    if (factor == 1.0) return;
    for (const int parameter : trainable_)
      if (at::Tensor& gradient = parameters_[parameter].tensor.mutable_grad(); gradient.defined()) gradient.mul_(factor);
  }

  std::shared_ptr<Group> group_;
  std::vector<NamedTensor> parameters_;
  ExchangeOptions options_;
  plan::BucketPlan plan_;
  TailLayout layout_;
  std::vector<int> trainable_, frozen_;
  bool weighted_ = false;          // This step's gradients are weighted by 1 / total already; else they are sums.
  std::vector<at::Tensor> flats_;  // One a bucket (and one for the facts where no bucket can carry them).
  at::Tensor tail_;                // A view of the flat that carries the facts.
};

}  // namespace

std::unique_ptr<Exchange> make_all_reduce_exchange(std::shared_ptr<Group> group, std::vector<NamedTensor> parameters,
                                                   ExchangeOptions options) {
  return std::make_unique<AllReduceExchange>(std::move(group), std::move(parameters), std::move(options));
}

}  // namespace trireme
