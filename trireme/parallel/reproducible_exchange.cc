#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/flat_gradients.h>
#include <trireme/parallel/reproducible_exchange.h>
#include <trireme/parallel/step_facts.h>
#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, remedy);
}

}  // namespace

// A bucket on its way between the ranks.
struct ReproducibleExchange::Travel {
  std::vector<at::Tensor> sent;
  // By first shard: the nodes of this rank's range, both its own and received ones.
  std::map<int, at::Tensor> nodes;
  std::vector<WorkPtr> messages;
  at::Tensor sum;  // The sum of this rank's range.
  WorkPtr gathered;
};

// The plan does not follow the order in which gradients become ready: only rank 0 would know it.
ReproducibleExchange::ReproducibleExchange(std::shared_ptr<Group> group,
                                           std::vector<NamedTensor> parameters,
                                           const plan::EnginePlan& plan, ExchangeOptions options)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      options_(std::move(options)),
      facts_(group_->size(), parameters_),
      tree_(plan.shard_tree.value()),
      threads_(at::get_num_threads()),
      plan_(plan.buckets),
      ranges_(plan.ranges) {
  for (const plan::Bucket& bucket : plan_.buckets)
    trainable_.insert(trainable_.end(), bucket.params.begin(), bucket.params.end());
  reduced_.resize(plan_.buckets.size());
  if (group_->size() > 1)
    for (size_t b = 0; b < reduced_.size(); ++b)
      reduced_[b] = at::empty({ranges_[b] * group_->size()}, options_of(plan_.buckets[b]));
  clear();
}

void ReproducibleExchange::end_shard(const Contribution& of_shard) {
  const at::NoGradGuard no_grad;
  if (next_shard_ >= shards().last)
    refuse(fmt::format("call {} of end_shard() in one step, but rank {} has shards {} to {}",
                       shards_.size() + 1, group_->rank(), shards().first, shards().last - 1),
           "one call for each of DataParallel::shards()");
  const Flats& flats = nodes_[next_shard_++] = take_flats();
  for (size_t b = 0; b < flats.size(); ++b) pack(plan_.buckets[b], parameters_, flats[b]);
  const std::vector<bool> has = has_gradient(parameters_);
  for (size_t i = 0; i < has.size(); ++i) used_[i] = used_[i] || has[i];
  for (const int parameter : trainable_)
    parameters_[static_cast<size_t>(parameter)].tensor.mutable_grad().reset();
  shards_.push_back(of_shard);
  const auto& sums = tree_.ranks[static_cast<size_t>(group_->rank())].sums;
  while (next_sum_ < sums.size() && sums[next_sum_].last <= next_shard_) add(sums[next_sum_++]);
}

// On the device of its gradients.
at::TensorOptions ReproducibleExchange::options_of(const plan::Bucket& bucket) const {
  const auto first = static_cast<size_t>(bucket.params.front());
  return at::TensorOptions(parameters_[first].tensor.device()).dtype(to_torch(bucket.dtype));
}

ReproducibleExchange::Flats ReproducibleExchange::take_flats() {
  if (!free_.empty()) {
    Flats flats = std::move(free_.back());
    free_.pop_back();
    return flats;
  }
  Flats flats;
  for (const plan::Bucket& bucket : plan_.buckets)
    flats.push_back(at::empty({bucket.elements}, options_of(bucket)));
  return flats;
}

void ReproducibleExchange::add(const plan::ShardSum& sum) {
  const auto from = nodes_.find(sum.from);
  const Flats& into = nodes_.at(sum.into);
  for (size_t b = 0; b < into.size(); ++b) into[b].add_(from->second[b]);
  free_.push_back(std::move(from->second));
  nodes_.erase(from);
}

StepOutcome ReproducibleExchange::exchange(const Contribution& mine, const Update& update) {
  const at::NoGradGuard no_grad;
  if (next_shard_ != shards().last)
    refuse(fmt::format("step() with {} of {} shards computed", shards_.size(),
                       shards().last - shards().first),
           "end_shard() after each of DataParallel::shards(), even if a shard has no samples");
  StepOutcome outcome = sum_facts(mine);
  if (outcome.nonfinite_ranks.empty() && outcome.samples > 0) {
    reduce();
    const double samples = weighted_ ? 1.0 : static_cast<double>(outcome.samples);
    finish_step(parameters_, trainable_, 1.0 / (mine.gradient_scale * samples), options_, update,
                outcome);
  }
  clear();
  return outcome;
}

// Each loss has its own place in the sum, so that the order of summation does not matter.
StepOutcome ReproducibleExchange::sum_facts(const Contribution& mine) {
  const at::Tensor values = at::zeros({facts_.size() + tree_.shards}, at::kDouble);
  double* const losses = values.mutable_data_ptr<double>() + facts_.size();
  Contribution whole = mine;
  for (size_t i = 0; i < shards_.size(); ++i) {
    whole.loss_sum += shards_[i].loss_sum;
    whole.samples += shards_[i].samples;
    whole.total_samples = std::max(whole.total_samples, shards_[i].total_samples);
    losses[static_cast<size_t>(shards().first) + i] =
        std::isfinite(shards_[i].loss_sum) ? shards_[i].loss_sum : 0;
  }
  facts_.write(whole, group_->rank(), used_, /*gradients_are_finite=*/true,
               values.narrow(0, 0, facts_.size()));
  if (group_->size() > 1) group_->all_reduce(values);
  StepFacts::Summed summed = facts_.read(values.narrow(0, 0, facts_.size()));
  used_ = summed.used;
  weighted_ = summed.weighted;
  if (summed.outcome.samples > 0)
    summed.outcome.loss = sum_of_losses(losses) / static_cast<double>(summed.outcome.samples);
  return summed.outcome;
}

double ReproducibleExchange::sum_of_losses(const double* losses) const {
  std::vector<double> nodes(losses, losses + tree_.shards);
  const auto run = [&](const std::vector<plan::ShardSum>& sums) {
    for (const plan::ShardSum& sum : sums)
      nodes[static_cast<size_t>(sum.into)] += nodes[static_cast<size_t>(sum.from)];
  };
  for (const plan::ShardTree::Rank& rank : tree_.ranks) run(rank.sums);
  run(tree_.combine);
  return nodes[0];
}

void ReproducibleExchange::reduce() {
  if (group_->size() == 1) {
    for (size_t b = 0; b < reduced_.size(); ++b) reduced_[b] = nodes_.at(0)[b];
  } else {
    std::vector<Travel> travels;
    for (size_t b = 0; b < reduced_.size(); ++b) travels.push_back(send(b));
    for (size_t b = 0; b < reduced_.size(); ++b) combine(b, travels[b]);
    for (const Travel& travel : travels) travel.gathered->wait();
  }
  for (size_t b = 0; b < reduced_.size(); ++b)
    unpack(plan_.buckets[b], parameters_, reduced_[b], used_);
}

ReproducibleExchange::Travel ReproducibleExchange::send(size_t bucket) {
  const int ranks = group_->size(), self = group_->rank();
  const int64_t range = ranges_[bucket];
  const auto length_of = [&](int rank) {
    return std::clamp(plan_.buckets[bucket].elements - rank * range, int64_t{0}, range);
  };
  const auto nodes_of = [&](int rank) -> const std::vector<plan::ShardRange>& {
    return tree_.ranks[static_cast<size_t>(rank)].travels;
  };
  const auto part_of = [&](const plan::ShardRange& node, int rank) {
    return nodes_.at(node.first)[bucket].narrow(0, rank * range, length_of(rank));
  };
  Travel travel;
  const int64_t length = length_of(self);
  if (length > 0)
    for (const plan::ShardRange& node : nodes_of(self))
      travel.nodes.emplace(node.first, part_of(node, self));
  for (int distance = 1; distance < ranks; ++distance) {
    const int to = (self + distance) % ranks, from = (self - distance + ranks) % ranks;
    if (length_of(to) > 0 && !nodes_of(self).empty()) {
      std::vector<at::Tensor> parts;
      for (const plan::ShardRange& node : nodes_of(self)) parts.push_back(part_of(node, to));
      travel.sent.push_back(parts.size() == 1 ? parts[0] : at::cat(parts));
      travel.messages.push_back(group_->send_async(travel.sent.back(), to));
    }
    if (length > 0 && !nodes_of(from).empty()) {
      const auto count = static_cast<int64_t>(nodes_of(from).size());
      const at::Tensor received = at::empty({count * length}, reduced_[bucket].options());
      for (int64_t i = 0; i < count; ++i)
        travel.nodes.emplace(nodes_of(from)[static_cast<size_t>(i)].first,
                             received.narrow(0, i * length, length));
      travel.messages.push_back(group_->recv_async(received, from));
    }
  }
  return travel;
}

void ReproducibleExchange::combine(size_t bucket, Travel& travel) {
  for (const WorkPtr& message : travel.messages) message->wait();
  travel.sum = at::zeros({ranges_[bucket]}, reduced_[bucket].options());
  if (!travel.nodes.empty()) {
    for (const plan::ShardSum& sum : tree_.combine)
      travel.nodes.at(sum.into).add_(travel.nodes.at(sum.from));
    const at::Tensor& sum = travel.nodes.at(0);
    travel.sum.narrow(0, 0, sum.numel()).copy_(sum);
  }
  travel.gathered = group_->all_gather_async(travel.sum, reduced_[bucket]);
}

void ReproducibleExchange::clear() {
  for (const int parameter : trainable_)
    parameters_[static_cast<size_t>(parameter)].tensor.mutable_grad().reset();
  for (auto& [shard, flats] : nodes_) free_.push_back(std::move(flats));
  nodes_.clear();
  shards_.clear();
  next_shard_ = shards().first;
  next_sum_ = 0;
  used_.assign(parameters_.size(), false);
}

Json ReproducibleExchange::counters() const {
  return {{"virtual_shards", tree_.shards}, {"threads", threads_}};
}

void ReproducibleExchange::load_counters(const Json& counters) {
  const int shards = counters.value("virtual_shards", tree_.shards),
            threads = counters.value("threads", threads_);
  if (shards == tree_.shards && threads == threads_) return;
  refuse(
      fmt::format("the saved state was computed with {} virtual shards and {} threads per replica,"
                  " but this run has {} and {}: it would add in another order and get other bits",
                  shards, threads, tree_.shards, threads_),
      fmt::format("reproducible.virtual_shards={} and device.threads={}, or --fresh for a new run",
                  shards, threads));
}

}  // namespace trireme
