#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <trireme/comm/dtype.h>
#include <trireme/parallel/flat_gradients.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/mesh/boxes.h>
#include <trireme/parallel/mesh/parameter_keeper.h>
#include <trireme/parallel/mesh/part_optimizer.h>
#include <trireme/tensor/master_weights.h>

namespace trireme {
namespace {

std::vector<at::Tensor> bare(const std::vector<OwnTensor>& own) {
  std::vector<at::Tensor> tensors;
  for (const OwnTensor& each : own) tensors.push_back(each.tensor);
  return tensors;
}

// The gradients of a bucket on their way: values, and behind them a 1 for each that this rank has.
struct Travelling {
  at::Tensor flat;
  WorkPtr work;
};

class Copies : public ParameterKeeper {
 public:
  explicit Copies(ParameterKeeperSetting setting)
      : setting_(std::move(setting)),
        masters_(bare(setting_.parameters)),
        updated_(named_masters()),
        optimizer_(setting_.optimizer, setting_.parameters, updated_),
        buckets_(plan::plan_buckets(specs_of(updated_), setting_.buckets).buckets) {}

  std::vector<Block> blocks() const override { return setting_.blocks; }

  void forward_without_samples(size_t, size_t) override {}
  void backward_without_samples(size_t, size_t) override {}

  void backward_ended(bool) override {}

  void reduce() override {
    start();
    const at::NoGradGuard no_grad;
    std::vector<bool> used = has_gradient(updated_);
    for (size_t b = 0; b < travelling_.size(); ++b) {
      travelling_[b].work->wait();
      const plan::Bucket& bucket = buckets_[b];
      const at::Tensor counts =
          travelling_[b].flat.narrow(0, bucket.elements, std::ssize(bucket.params)).to(at::kFloat);
      for (int64_t i = 0; i < counts.numel(); ++i)
        used[static_cast<size_t>(bucket.params[static_cast<size_t>(i)])] =
            counts[i].item<float>() > 0;
      unpack(bucket, updated_, travelling_[b].flat, used);
    }
    travelling_.clear();
  }

  std::vector<NamedTensor> updated() const override { return updated_; }

  // All replicas have the same reduced gradients, and the first one counts them.
  double squared_norm() override {
    if (setting_.replicas->rank() > 0) return 0;
    std::vector<at::Tensor> counted;
    for (size_t i = 0; i < updated_.size(); ++i)
      if (setting_.parameters[i].counts) counted.push_back(updated_[i].tensor.grad());
    const double norm = norm_of(counted);
    return norm * norm;
  }

  int64_t update(double factor) override {
    std::vector<at::Tensor> gradients;
    int64_t elements = 0;
    for (size_t i = 0; i < updated_.size(); ++i) {
      const at::Tensor& tensor = updated_[i].tensor;
      gradients.push_back(tensor.grad());
      if (tensor.requires_grad() && setting_.parameters[i].counts) elements += tensor.numel();
    }
    multiply(gradients, factor);
    optimizer_.step();
    masters_.publish();
    return elements;
  }

  void publish() override {}

  void drop_gradients() override {
    travelling_.clear();
    for (const OwnTensor& own : setting_.parameters) own.tensor.mutable_grad().reset();
    for (const auto& [name, tensor] : updated_) tensor.mutable_grad().reset();
  }

  void show(EngineState& state) const override {
    for (const OwnTensor& own : setting_.parameters)
      show_boxes(own.name, own.boxes, own.tensor, StateKind::parameter, state.tensors);
    for (size_t i = 0; i < updated_.size(); ++i)
      if (const OwnTensor& own = setting_.parameters[i]; !updated_[i].tensor.is_same(own.tensor))
        show_boxes(own.name, own.boxes, updated_[i].tensor, StateKind::master, state.tensors);
    optimizer_.show(state);
  }

  void begin_load(const IncomingState& incoming) override {
    masters_.adopt();
    optimizer_.begin_load(incoming);
  }

  void end_load() override {
    optimizer_.end_load();
    masters_.publish();
  }

  std::vector<double> rates() const override { return optimizer_.rates(); }
  void set_rates(std::span<const double> rates) override { optimizer_.set_rates(rates); }

 private:
  std::vector<NamedTensor> named_masters() const {
    std::vector<NamedTensor> named;
    for (size_t i = 0; i < setting_.parameters.size(); ++i)
      named.push_back({setting_.parameters[i].name, masters_.masters()[i]});
    return named;
  }

  // The gradients are complete.
  void start() {
    const at::NoGradGuard no_grad;
    std::vector<NamedTensor> parameters;
    for (const OwnTensor& own : setting_.parameters) parameters.push_back({own.name, own.tensor});
    separate_gradients(parameters);
    masters_.take_gradients();
    if (setting_.replicas->size() == 1) return;
    const std::vector<bool> has = has_gradient(updated_);
    for (const plan::Bucket& bucket : buckets_) {
      Travelling next;
      const auto flags = std::ssize(bucket.params);
      next.flat =
          at::empty({bucket.elements + flags}, at::TensorOptions().dtype(to_torch(bucket.dtype)));
      pack(bucket, updated_, next.flat.narrow(0, 0, bucket.elements));
      for (int64_t i = 0; i < flags; ++i)
        next.flat[bucket.elements + i] =
            has[static_cast<size_t>(bucket.params[static_cast<size_t>(i)])] ? 1 : 0;
      next.work = setting_.replicas->all_reduce_async(next.flat);
      travelling_.push_back(std::move(next));
    }
  }

  const ParameterKeeperSetting setting_;
  MasterWeights masters_;
  const std::vector<NamedTensor> updated_;  // The parameters, or their masters.
  PartOptimizer optimizer_;
  const std::vector<plan::Bucket> buckets_;
  std::vector<Travelling> travelling_;
};

}  // namespace

at::Tensor part_of(const at::Tensor& whole, const plan::TensorSlice& slice) {
  at::Tensor part = whole;
  for (size_t d = 0; d < slice.shape.size(); ++d)
    part = part.narrow(static_cast<int64_t>(d), slice.from[d], slice.sizes[d]);
  return part;
}

std::unique_ptr<ParameterKeeper> keep_copies(ParameterKeeperSetting setting) {
  return std::make_unique<Copies>(std::move(setting));
}

}  // namespace trireme
