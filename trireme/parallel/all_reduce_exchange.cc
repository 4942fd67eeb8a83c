#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/bucket_progress.h>
#include <trireme/parallel/compression/compressed_buckets.h>
#include <trireme/parallel/exchange.h>
#include <trireme/parallel/flat_gradients.h>
#include <trireme/parallel/gradient_watch.h>
#include <trireme/parallel/step_facts.h>
#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

// The same memory. Optimizer::zero_grad() refuses a gradient that autograd knows as a view.
at::Tensor not_as_view(const at::Tensor& view) {
  const at::NoGradGuard no_grad;
  return at::empty({0}, view.options())
      .set_(view.storage(), view.storage_offset(), view.sizes(), view.strides());
}

class AllReduceExchange : public Exchange {
 public:
  AllReduceExchange(std::shared_ptr<Group> group, std::vector<NamedTensor> parameters,
                    plan::EnginePlan plan, Planner planner, ExchangeOptions options)
      : group_(std::move(group)),
        parameters_(std::move(parameters)),
        planner_(std::move(planner)),
        options_(std::move(options)),
        facts_(group_->size(), parameters_) {
    adopt(std::move(plan));
    if (plan_.follows_ready_order) watch();
  }

  void expect_last_backward(double gradient_scale) override {
    if (!watch_) return;
    gradient_scale_ = gradient_scale;
    watch_->arm(true);
  }

  StepOutcome exchange(const Contribution& mine, const Update& update) override {
    const StepOutcome outcome = reduce_and_update(mine, update);
    // An undefined .grad lets the next backward leave its gradients where it makes them, and
    // nothing has to be zeroed.
    for (const int parameter : trainable_) parameters_[parameter].tensor.mutable_grad().reset();
    return outcome;
  }

  void expect_backward(bool expected) override {
    if (watch_) watch_->arm(expected);
  }

  StepOutcome leave_means(const Contribution& mine) override {
    const StepOutcome outcome = reduce_and_update(mine, [](std::span<const int>) {});
    for (const int p : trainable_)
      if (at::Tensor& gradient = parameters_[p].tensor.mutable_grad(); gradient.defined())
        gradient = not_as_view(gradient);
    return outcome;
  }

  StateView state() override { return compressed_ ? compressed_->state() : StateView(); }

 private:
  StepOutcome reduce_and_update(const Contribution& mine, const Update& update) {
    if (watch_) watch_->arm(false);
    gradient_scale_ = mine.gradient_scale;
    if (watch_ && !in_ready_order_) order_by_readiness();
    StepOutcome outcome = group_->size() > 1 ? reduce(mine) : alone(mine);
    if (outcome.nonfinite_ranks.empty() && !outcome.nonfinite_gradients && outcome.samples > 0) {
      // Compressed gradients were scaled back before.
      const double too_large = compressed_ ? 1.0 : mine.gradient_scale;
      const double total = static_cast<double>(outcome.samples);
      double factor = 1.0 / (weighted_ ? too_large : too_large * total);
      if (options_.weight)
        factor = weighted_ ? static_cast<double>(mine.total_samples) / total : 1.0;
      finish_step(parameters_, trainable_, factor, options_, update, outcome);
    }
    works_.clear();
    if (compressed_) compressed_->end_step(outcome.updated);
    progress_->next_step();
    return outcome;
  }

  const std::vector<plan::Bucket>& buckets() const { return plan_.buckets.buckets; }
  bool compresses() const { return options_.compression.name != "none"; }

  void adopt(plan::EnginePlan plan) {
    plan_ = std::move(plan);
    trainable_.clear();
    for (const plan::Bucket& bucket : buckets())
      trainable_.insert(trainable_.end(), bucket.params.begin(), bucket.params.end());
    flats_.clear();
    fact_values_.reset();
    if (group_->size() > 1) allocate();
    progress_ = std::make_unique<BucketProgress>(plan_.buckets, parameters_);
  }

  void watch() {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : parameters_) tensors.push_back(tensor);
    watch_ = std::make_unique<GradientWatch>(tensors, [this](int parameter) { ready(parameter); });
  }

  // Runs in backward. Sends full buckets, in the plan's order on every rank. The last bucket waits
  // for the facts of the step.
  void ready(int parameter) {
    progress_->ready(parameter);
    if (!in_ready_order_) return;
    const at::NoGradGuard no_grad;
    while (sent() + 1 < buckets().size() && progress_->is_complete(sent())) {
      const size_t bucket = sent();
      prepare(bucket);
      send(bucket);
    }
  }

  size_t sent() const { return compressed_ ? compressed_->sent() : works_.size(); }

  // Somebody may keep a gradient of an earlier step, which lies in this memory.
  void take_new_memory_if_kept(size_t bucket) {
    at::Tensor& flat = flats_[bucket];
    const bool has_facts = fact_values_.defined() && fact_values_.is_alias_of(flat);
    size_t own = has_facts ? 2 : 1;  // The owners of the memory that are known here.
    for (const int p : buckets()[bucket].params)
      if (const at::Tensor& gradient = parameters_[p].tensor.grad();
          gradient.defined() && !gradient.is_sparse() && gradient.is_alias_of(flat))
        ++own;
    if (flat.storage().use_count() <= own) return;
    const int64_t facts_at = has_facts ? fact_values_.storage_offset() : 0;
    flat = at::zeros_like(flat);
    if (has_facts) fact_values_ = flat.narrow(0, facts_at, fact_values_.numel());
  }

  void prepare(size_t bucket) {
    if (options_.weight) take_new_memory_if_kept(bucket);
    pack(buckets()[bucket], parameters_, flats_[bucket], options_.weight ? options_.weight() : 1);
    if (compressed_) compressed_->prepare(flats_[bucket], gradient_scale_);
  }

  void send(size_t flat) {
    if (compressed_)
      compressed_->send(flats_[flat]);
    else
      works_.push_back(group_->all_reduce_async(flats_[flat]));
  }

  // Orders buckets as rank 0 saw gradients become ready in the first step. Nothing was sent before
  // in that step. Thus every step, also the first of a resumed run, adds in the same order.
  void order_by_readiness() {
    in_ready_order_ = true;
    at::Tensor order = at::full({static_cast<int64_t>(trainable_.size())}, -1, at::kLong);
    for (size_t i = 0; i < progress_->order().size(); ++i)
      order[static_cast<int64_t>(i)] = progress_->order()[i];
    group_->broadcast(order, 0);
    std::vector<int> known;
    for (int64_t i = 0; i < order.numel(); ++i)
      if (const auto parameter = order[i].item<int64_t>(); parameter >= 0)
        known.push_back(static_cast<int>(parameter));
    adopt(planner_(known));
  }

  // The buckets are where the gradients are, except that compressors work on the host.
  void allocate() {
    const at::Device device =
        compresses() || parameters_.empty() ? at::kCPU : parameters_[0].tensor.device();
    for (const plan::Message& message : plan_.messages) {
      const at::Tensor flat =
          at::zeros({message.elements}, at::TensorOptions(device).dtype(to_torch(message.dtype)));
      if (message.facts > 0)
        fact_values_ = flat.narrow(0, message.elements - message.facts, message.facts);
      // With compression the facts have a place of their own among the messages.
      if (message.bucket >= 0 || !compresses()) flats_.push_back(flat);
    }
    if (compresses()) compress();
  }

  // Errors that were kept or loaded before the buckets were reordered stay with their parameters.
  void compress() {
    auto made = std::make_unique<compression::CompressedBuckets>(
        group_, plan_.buckets, parameters_, options_.compression);
    if (compressed_) made->take_state(*compressed_);
    compressed_ = std::move(made);
  }

  StepOutcome alone(const Contribution& mine) {
    if (mine.change.change != Change::none)
      throw ErrorOfAllRanks(change_error(group_->rank(), mine.change, names_of(parameters_)));
    StepOutcome outcome;
    weighted_ = mine.total_samples > 0;
    outcome.samples = mine.samples;
    outcome.loss = mine.samples > 0 ? mine.loss_sum / static_cast<double>(mine.samples) : 0;
    outcome.stop = mine.wants_stop;
    outcome.regroup = mine.wants_regroup;
    outcome.end = mine.wants_end;
    if (!std::isfinite(mine.loss_sum)) outcome.nonfinite_ranks = {group_->rank()};
    return outcome;
  }

  StepOutcome reduce(const Contribution& mine) {
    const at::NoGradGuard no_grad;
    const StepFacts::Summed facts = compressed_ ? reduce_compressed(mine) : reduce_plainly(mine);
    weighted_ = facts.weighted;
    for (size_t i = 0; i < buckets().size(); ++i)
      unpack(buckets()[i], parameters_, flats_[i], facts.used);
    return facts.outcome;
  }

  // The facts travel behind the last bucket's gradients, so that they need no message of their
  // own.
  StepFacts::Summed reduce_plainly(const Contribution& mine) {
    // Sends the buckets that did not leave during backward.
    for (size_t i = sent(); i < buckets().size(); ++i) prepare(i);
    facts_.write(mine, group_->rank(), has_gradient(parameters_), /*gradients_are_finite=*/true,
                 fact_values_);
    for (size_t i = sent(); i < flats_.size(); ++i) send(i);
    for (const WorkPtr& work : works_) work->wait();
    works_.clear();
    return facts_.read(fact_values_);
  }

  // The ranks learn only now, when most gradients have been sent, whether all gradients are
  // finite. In a step that does not count, compression keeps its old errors.
  StepFacts::Summed reduce_compressed(const Contribution& mine) {
    for (size_t i = sent(); i < flats_.size(); ++i) prepare(i);
    facts_.write(mine, group_->rank(), has_gradient(parameters_), compressed_->is_finite(),
                 fact_values_);
    compressed_->finish({flats_.begin() + static_cast<std::ptrdiff_t>(sent()), flats_.end()},
                        fact_values_);
    return facts_.read(fact_values_);
  }

  std::shared_ptr<Group> group_;
  std::vector<NamedTensor> parameters_;
  Planner planner_;
  ExchangeOptions options_;
  plan::EnginePlan plan_;
  std::vector<int> trainable_;
  // This step's gradients are already weighted by 1 / total; otherwise they are sums.
  bool weighted_ = false;
  // One tensor for each bucket, and one for the facts if no bucket can carry them.
  std::vector<at::Tensor> flats_;
  StepFacts facts_;
  // A view of the flat that carries the facts. With compression it is a tensor of its own.
  at::Tensor fact_values_;
  // Null if gradients are not compressed.
  std::unique_ptr<compression::CompressedBuckets> compressed_;
  // Null unless the backend works while backward does.
  std::unique_ptr<GradientWatch> watch_;
  bool in_ready_order_ = false;
  // The state of the current step follows.
  double gradient_scale_ = 1;
  std::unique_ptr<BucketProgress> progress_;
  std::vector<WorkPtr> works_;  // The sent buckets, in the plan's order.
};

}  // namespace

StepOutcome Exchange::leave_means(const Contribution&) {
  throw Error(ErrorCode::unsupported, "parallel", "this exchange updates, and leaves no gradients",
              "no shared parameters, virtual shards or local steps in a loop that updates itself");
}

std::unique_ptr<Exchange> make_all_reduce_exchange(std::shared_ptr<Group> group,
                                                   std::vector<NamedTensor> parameters,
                                                   plan::EnginePlan plan, Planner planner,
                                                   ExchangeOptions options) {
  return std::make_unique<AllReduceExchange>(std::move(group), std::move(parameters),
                                             std::move(plan), std::move(planner),
                                             std::move(options));
}

}  // namespace trireme
