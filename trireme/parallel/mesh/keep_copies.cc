#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <trireme/comm/dtype.h>
#include <trireme/parallel/boxes.h>
#include <trireme/parallel/flat_gradients.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/mesh/gradients_by_block.h>
#include <trireme/parallel/mesh/parameter_keeper.h>
#include <trireme/parallel/mesh/part_optimizer.h>
#include <trireme/tensor/master_weights.h>

namespace trireme {
namespace {

// The gradients of a bucket on their way: values, and behind them a 1 for each that this rank has.
struct Travelling {
  at::Tensor flat;
  WorkPtr work;
};

class Copies : public ParameterKeeper {
 public:
  explicit Copies(ParameterKeeperSetting setting)
      : setting_(std::move(setting)),
        parameters_(named(setting_.parameters)),
        masters_(tensors_of(setting_.parameters)),
        updated_(named(setting_.parameters, masters_.masters())),
        optimizer_(setting_, setting_.parameters, updated_, tensors_with_gradients_in_files()),
        blocks_(setting_.blocks),
        buckets_(plan::plan_buckets(specs_of(updated_), setting_.buckets).buckets) {
    if (optimizer_.offloaded()) blocks_ = optimizer_.offloaded()->paged(setting_.blocks);
    if (!optimizer_.gradient_files()) return;
    by_block_ = std::make_shared<GradientsByBlock>(setting_, *optimizer_.gradient_files());
    blocks_ = visited(blocks_, by_block_);
  }

  std::vector<Block> blocks() const override { return blocks_; }

  void forward_without_samples(size_t, size_t) override {}
  void backward_begins(BackwardPart, size_t first, size_t last) override {
    if (by_block_) by_block_->begin(first, last);
  }
  size_t block_of_backward() const override { return by_block_ ? by_block_->entered() : 0; }
  void enter_weights(size_t block) override {
    if (by_block_) by_block_->enter(block);
  }
  void backward_ended() override {
    if (by_block_) by_block_->end();
  }

  void reduce() override {
    start();
    const at::NoGradGuard no_grad;
    std::vector<bool> used = has_gradient(updated_);
    for (size_t b = 0; b < travelling_.size(); ++b) {
      travelling_[b].work->wait();
      const plan::Bucket& bucket = buckets_[b];
      const at::Tensor counts =
          travelling_[b].flat.narrow(0, bucket.elements, std::ssize(bucket.params)).to(at::kFloat);
      for (size_t i = 0; i < bucket.params.size(); ++i)
        used[static_cast<size_t>(bucket.params[i])] = counts.const_data_ptr<float>()[i] > 0;
      unpack(bucket, updated_, travelling_[b].flat, used);
    }
    travelling_.clear();
  }

  std::vector<NamedTensor> updated() const override { return updated_; }

  // All replicas have the same reduced gradients, and the first one counts them.
  double squared_norm() override {
    return setting_.replicas->rank() > 0 ? 0 : optimizer_.squared_norm();
  }

  int64_t update(double factor) override {
    optimizer_.scale_gradients(factor);
    optimizer_.step();
    masters_.publish();
    if (optimizer_.offloaded()) optimizer_.offloaded()->leave();  // Masters have been read again.
    return optimizer_.counted_elements();
  }

  void publish() override {}

  void drop_gradients() override {
    travelling_.clear();
    if (optimizer_.gradient_files()) optimizer_.gradient_files()->leave();
    for (const OwnTensor& own : setting_.parameters) own.tensor.mutable_grad().reset();
    for (const auto& [name, tensor] : updated_) tensor.mutable_grad().reset();
  }

  void show(EngineState& state) const override {
    for (const OwnTensor& own : setting_.parameters)
      show_boxes(own.name, own.boxes, own.tensor, StateKind::parameter, state.tensors);
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
  // Gradients that travel are in memory.
  std::vector<NamedTensor> tensors_with_gradients_in_files() const {
    return setting_.replicas->size() == 1 ? updated_ : std::vector<NamedTensor>();
  }

  // The gradients are complete.
  void start() {
    const at::NoGradGuard no_grad;
    separate_gradients(parameters_);
    masters_.take_gradients();
    if (optimizer_.gradient_files()) optimizer_.gradient_files()->keep_all();
    if (setting_.replicas->size() == 1) return;
    const std::vector<bool> has = has_gradient(updated_);
    for (const plan::Bucket& bucket : buckets_) {
      Travelling next;
      const at::Tensor flags = at::empty({std::ssize(bucket.params)}, at::kFloat);
      for (size_t i = 0; i < bucket.params.size(); ++i)
        flags.mutable_data_ptr<float>()[i] = has[static_cast<size_t>(bucket.params[i])] ? 1 : 0;
      next.flat = at::empty({bucket.elements + flags.numel()},
                            at::TensorOptions().dtype(to_torch(bucket.dtype)));
      pack(bucket, updated_, next.flat.narrow(0, 0, bucket.elements));
      next.flat.narrow(0, bucket.elements, flags.numel()).copy_(flags);
      next.work = setting_.replicas->all_reduce_async(next.flat);
      travelling_.push_back(std::move(next));
    }
  }

  const ParameterKeeperSetting setting_;
  const std::vector<NamedTensor> parameters_;
  const MasterWeights masters_;
  const std::vector<NamedTensor> updated_;  // The parameters, or their masters.
  PartOptimizer optimizer_;
  std::vector<Block> blocks_;
  std::shared_ptr<GradientsByBlock> by_block_;  // Null unless gradients are in a file.
  const std::vector<plan::Bucket> buckets_;
  std::vector<Travelling> travelling_;
};

}  // namespace

std::unique_ptr<ParameterKeeper> keep_copies(ParameterKeeperSetting setting) {
  return std::make_unique<Copies>(std::move(setting));
}

}  // namespace trireme
