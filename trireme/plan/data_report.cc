#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/plan/data_plan.h>
#include <trireme/plan/mixture.h>
#include <algorithm>

namespace trireme::plan {
namespace {

// The size of the last batch of an epoch, or 0 if the epoch has no batches.
int64_t last_batch_size(const DataPlanOptions& options) {
  const int64_t rest = options.samples % options.batch;
  if (rest != 0 && !options.drop_last) return rest;
  return options.samples == 0 ? 0 : options.batch;
}

// Lists the shares of the replicas: "replicas 0 to 2 take 9, replica 3 takes 8".
std::string shares_of(const DataPlan& plan, int64_t size, int world_size) {
  const auto samples_of = [&](int rank) {
    const auto [first, last] = plan.share_of(size, rank, world_size);
    return last - first;
  };
  std::string text;
  for (int first = 0, last = 0; first < world_size; first = last + 1) {
    const int64_t count = samples_of(first);
    for (last = first; last + 1 < world_size && samples_of(last + 1) == count;) ++last;
    if (first == 0 && last + 1 == world_size) return fmt::format("each replica takes {}", count);
    if (!text.empty()) text += ", ";
    text += first == last ? fmt::format("replica {} takes {}", first, count)
                          : fmt::format("replicas {} to {} take {}", first, last, count);
  }
  return text;
}

}  // namespace

std::string DataPlan::describe(int world_size) const {
  const auto [samples, batch, seed, shuffle, drop_last, virtual_shards] = options_;
  const int64_t batches = batches_per_epoch();
  const int64_t last = last_batch_size(options_);
  std::string text = fmt::format("an epoch of {} samples in {} steps, {}\n", samples, batches,
                                 shuffle.describe(seed));
  if (shuffle.mixture) text += shuffle.mixture->describe();
  if (batches == 0) return text;
  const int64_t full_steps = last == batch ? batches : batches - 1;
  if (full_steps > 0) {
    text += fmt::format("  {} x {} samples: {}\n", full_steps, batch,
                        shares_of(*this, batch, world_size));
  }
  if (last != batch)
    text += fmt::format("  last step {} samples: {}\n", last, shares_of(*this, last, world_size));
  if (drop_last && samples % batch != 0) {
    text += fmt::format("  {} samples are left out of each epoch{}\n", samples % batch,
                        shuffle.shuffles() ? ", others each time" : "");
  }
  if (virtual_shards > 0)
    text += fmt::format("  each batch in {} virtual shards\n", virtual_shards);
  return text;
}

Json DataPlan::to_json(int world_size) const {
  Json shares = Json::array();
  for (int rank = 0; rank < world_size; ++rank) {
    const auto [first, last] = share_of(options_.batch, rank, world_size);
    shares.push_back(last - first);
  }
  return {{"samples", options_.samples},
          {"batch", options_.batch},
          {"seed", options_.seed},
          {"shuffle", options_.shuffle.to_json()},
          {"drop_last", options_.drop_last},
          {"virtual_shards", options_.virtual_shards},
          {"batches_per_epoch", batches_per_epoch()},
          {"last_batch", last_batch_size(options_)},
          {"world_size", world_size},
          {"samples_per_replica", shares}};
}

void check_uses(const std::vector<int>& uses, bool may_leave_out) {
  for (size_t sample = 0; sample < uses.size(); ++sample) {
    const bool right = uses[sample] == 1 || (uses[sample] == 0 && may_leave_out);
    if (!right)
      throw Error(
          ErrorCode::internal, "plan",
          fmt::format("data plan: sample {} is used {} times in an epoch", sample, uses[sample]));
  }
}

namespace {

// The shares of a batch follow each other and cover it.
void check_shares(const DataPlan& plan, int64_t size, int world_size) {
  int64_t end = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto [first, last] = plan.share_of(size, rank, world_size);
    if (first != end || last < first)
      throw Error(
          ErrorCode::internal, "plan",
          fmt::format("data plan: rank {} takes samples {} to {} of a batch, and the ranks "
                      "before it end at {}",
                      rank, first, last, end));
    end = last;
  }
  if (end != size)
    throw Error(ErrorCode::internal, "plan",
                fmt::format("data plan: the ranks take {} of {} samples of a batch", end, size));
}

}  // namespace

void check(const DataPlan& plan, int world_size) {
  const DataPlanOptions& options = plan.options();
  if (std::max(options.samples, plan.order().numbers()) > kLargestOrderTable) {
    // A walk would take minutes. Each place of the epoch is in one batch, and KeyedOrder is a
    // permutation.
    check(plan.order());
    check_shares(plan, options.batch, world_size);
    if (const int64_t rest = options.samples % options.batch; rest > 0 && !options.drop_last)
      check_shares(plan, rest, world_size);
    return;
  }
  check(plan.order());
  std::vector<int> uses(static_cast<size_t>(plan.order().numbers()), 0);
  int64_t batches = 0;
  for (DataPosition at; at.epoch == 0; at = plan.next(at)) {
    const std::vector<int64_t> batch = plan.global_batch(at);
    if (batch.empty()) break;
    ++batches;
    for (int rank = 0; rank < world_size; ++rank) {
      const auto [first, last] =
          plan.share_of(static_cast<int64_t>(batch.size()), rank, world_size);
      for (int64_t i = first; i < last; ++i)
        ++uses[static_cast<size_t>(batch[static_cast<size_t>(i)])];
    }
  }
  if (batches != plan.batches_per_epoch()) {
    throw Error(ErrorCode::internal, "plan",
                fmt::format("data plan: an epoch has {} batches, and {} were announced", batches,
                            plan.batches_per_epoch()));
  }
  check_uses(uses, options.drop_last || plan.order().numbers() > options.samples);
}

}  // namespace trireme::plan
