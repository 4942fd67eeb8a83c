#include <trireme/plan/data_parallel_plan.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/config/row.h>
#include <algorithm>
#include <map>

namespace trireme::plan {
namespace {

constexpr int64_t kAlignedElements = 16;  // Ranges of elements begin at its multiples.

using Among = OperationPlanner::Among;

// Whether a bucket of this type can carry the facts. Half precision cannot count samples: the
// facts then travel apart.
bool carries_facts(DType dtype) { return dtype == DType::float32 || dtype == DType::float64; }

ExchangeKind choose_exchange(const DataParallelFacts& facts) {
  const int ranks = facts.placement.ranks(), hosts = facts.placement.host_count();
  if (facts.virtual_shards > 0) return ExchangeKind::reproducible;
  if (facts.local.steps > 1 && ranks > 1) return ExchangeKind::local_steps;
  // Compression is meant for the links between hosts, each of which sends one sum of gradients.
  // With a single host it takes the place of sharing, so that it can be tried.
  const bool is_apart = facts.compression.name != "none" && hosts == 1;
  // This is the same on every rank, even if some host has only one rank.
  const bool can_share = hosts < ranks && !facts.state_tensors.empty();
  if (facts.share_parameters && can_share && !is_apart) return ExchangeKind::shared;
  return facts.leaves_means && hosts == 1 && ranks > 1 && !is_apart ? ExchangeKind::host_means
                                                                    : ExchangeKind::all_reduce;
}

std::string content_of(size_t bucket) { return fmt::format("gradients of bucket {}", bucket); }

// Plans the operations of one step of one exchange.
class StepPlanner {
 public:
  StepPlanner(const DataParallelFacts& facts, EnginePlan& plan)
      : facts_(facts), plan_(plan), operations_(plan.placement) {}

  void plan() {
    if (plan_.ranks() > 1) switch (plan_.exchange) {
        case ExchangeKind::all_reduce: all_reduce({}); break;
        case ExchangeKind::shared: shared(); break;
        case ExchangeKind::host_means: break;  // Nothing travels.
        case ExchangeKind::reproducible: reproducible(); break;
        case ExchangeKind::local_steps: local_steps(); break;
        case ExchangeKind::servers:
        case ExchangeKind::own: break;
      }
    plan_.operations = operations_.take();
  }

 private:
  void all_reduce(Steps steps) {
    plan_messages();
    if (plan_.follows_ready_order) order();
    operations_.in(steps);
    if (is_compressed()) return compressed();
    for (const Message& message : plan_.messages)
      operations_.all_reduce(message.bucket < 0 ? "facts of the step"
                             : message.facts > 0
                                 ? content_of(static_cast<size_t>(message.bucket)) + ", and facts"
                                 : content_of(static_cast<size_t>(message.bucket)),
                             message.dtype, message.elements);
  }

  // The ranks take over the order in which rank 0 saw gradients become ready in the first step.
  void order() {
    int64_t trainable = 0;
    for (const Bucket& bucket : plan_.buckets.buckets)
      trainable += static_cast<int64_t>(bucket.params.size());
    operations_.in({1, 1, 1});
    operations_.broadcast("order of gradients", DType::int64, trainable);
  }

  // Without compression the facts travel behind the gradients of the last bucket.
  void plan_messages() {
    const auto& buckets = plan_.buckets.buckets;
    for (size_t b = 0; b < buckets.size(); ++b) {
      const bool carries =
          b + 1 == buckets.size() && !is_compressed() && carries_facts(buckets[b].dtype);
      const int64_t facts = carries ? plan_.facts : 0;
      plan_.messages.push_back(
          {static_cast<int>(b), buckets[b].dtype, buckets[b].elements + facts, facts});
    }
    if (plan_.messages.empty() || plan_.messages.back().facts == 0)
      plan_.messages.push_back(
          {-1, is_compressed() ? DType::float64 : DType::float32, plan_.facts, plan_.facts});
  }

  // One copy on each host: only sums of a host travel, between the first ranks of the hosts.
  void shared() {
    if (plan_.placement.host_count() == 1) return;
    operations_.among(Among::leaders);
    if (is_compressed()) return compressed();
    for (size_t b = 0; b < plan_.buckets.buckets.size(); ++b)
      operations_.all_reduce(content_of(b), plan_.buckets.buckets[b].dtype,
                             plan_.buckets.buckets[b].elements);
    operations_.all_reduce("facts of the step", DType::float64, plan_.facts);
  }

  bool is_compressed() const { return facts_.compression.name != "none"; }

  void compressed() {
    for (size_t b = 0; b < plan_.buckets.buckets.size(); ++b) compressed_bucket(b);
    operations_.all_reduce("facts of the step", DType::float64, plan_.facts);
  }

  void compressed_bucket(size_t number) {
    const Bucket& bucket = plan_.buckets.buckets[number];
    CompressedBucketFacts facts{
        content_of(number), bucket.dtype, bucket.elements, {}, facts_.compression};
    for (const int p : bucket.params)
      facts.parameters.push_back(plan_.parameters[static_cast<size_t>(p)]);
    plan_.knows_all_operations &= plan_compressed(facts, operations_);
  }

  void reproducible() {
    const int64_t losses = plan_.shard_tree->shards;
    operations_.all_reduce("facts of the step", DType::float64, plan_.facts + losses);
    for (size_t b = 0; b < plan_.buckets.buckets.size(); ++b) {
      const Bucket& bucket = plan_.buckets.buckets[b];
      const int64_t range = plan_.ranges[b];
      const std::string nodes_of_bucket = fmt::format("nodes of bucket {}", b);
      for (int from = 0; from < plan_.ranks(); ++from) {
        const auto nodes = static_cast<int64_t>(
            plan_.shard_tree->ranks[static_cast<size_t>(from)].travels.size());
        for (int to = 0; to < plan_.ranks(); ++to)
          if (const int64_t length = std::clamp(bucket.elements - to * range, int64_t{0}, range);
              from != to && nodes > 0 && length > 0)
            operations_.send(nodes_of_bucket, from, to, bucket.dtype, nodes * length);
      }
      operations_.all_gather(fmt::format("sums of bucket {}", b), bucket.dtype,
                             range * plan_.ranks());
    }
  }

  void local_steps() {
    const int64_t after = facts_.local.after;
    if (after > 0)
      all_reduce({1, after, 1});
    else
      plan_messages();
    operations_.in({after + 1, -1, 1});
    operations_.all_reduce("facts of the step", DType::float64, plan_.facts);
    operations_.in({after + 1, -1, facts_.local.steps});
    average("average of parameters", [](size_t) { return int64_t{1}; });
    if (!facts_.local.momentum) return;
    plan_.knows_all_operations &= !facts_.state_tensors.empty();
    for (const char* end : {"least", "most"})
      operations_.all_reduce(fmt::format("elements of state, {}", end), DType::float64, 1);
    average("average of optimizer state", [this](size_t p) {
      return int64_t{facts_.state_tensors.empty() ? 0 : facts_.state_tensors[p]};
    });
  }

  // All trainable tensors of one type travel together.
  template <typename Tensors>
  void average(const std::string& content, Tensors tensors) {
    std::map<DType, int64_t> elements;
    for (size_t p = 0; p < plan_.parameters.size(); ++p)
      if (const TensorSpec& spec = plan_.parameters[p]; spec.trainable)
        elements[spec.dtype] += spec.elements() * tensors(p);
    for (const auto& [dtype, count] : elements)
      if (count > 0) operations_.all_reduce(content, dtype, count);
  }

  const DataParallelFacts& facts_;
  EnginePlan& plan_;
  OperationPlanner operations_;
};

void refuse_with_shards(const DataParallelFacts& facts) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("{} virtual shards with {}", facts.virtual_shards, what),
                "one of them");
  };
  if (facts.local.steps > 1)
    refuse(
        fmt::format("{} local steps: the result of local steps depends on the number of "
                    "replicas",
                    facts.local.steps));
  if (facts.compression.name != "none")
    refuse(
        fmt::format("compression {}: the part that compression leaves out depends on the rank "
                    "that computed it",
                    facts.compression.name));
}

}  // namespace

config::Rows rows_of(const LocalSgdOptions*) {
  using O = LocalSgdOptions;
  return config::all_of<O>(
      {config::row(&O::steps, {.name = "strategy.local_steps",
                               .meaning = "Steps that replicas take independently before their "
                                          "parameters are averaged (local SGD); 1: none.",
                               .range = config::at_least(1)}),
       config::row(&O::after, {.name = "strategy.local_after",
                               .meaning = "With strategy.local_steps: replicas stay together "
                                          "until this step (post-local SGD).",
                               .range = config::at_least(0)}),
       config::row(&O::momentum,
                   {.name = "strategy.local_momentum",
                    .meaning = "With strategy.local_steps: average the optimizer's state too."})});
}

int64_t facts_of_step(int ranks, size_t parameters) {
  return 6 + 5 * static_cast<int64_t>(ranks) + static_cast<int64_t>(parameters);
}

EnginePlan plan_data_parallel(const DataParallelFacts& facts) {
  if (facts.virtual_shards > 0) refuse_with_shards(facts);
  check(facts.placement);
  if (!facts.state_tensors.empty() && facts.state_tensors.size() != facts.parameters.size())
    throw Error(ErrorCode::internal, "plan",
                fmt::format("state tensors of {} parameters, and there are {}",
                            facts.state_tensors.size(), facts.parameters.size()));
  EnginePlan plan;
  plan.exchange = choose_exchange(facts);
  plan.mesh = Mesh({{"data", facts.placement.ranks()}});
  plan.placement = facts.placement;
  plan.data = facts.data;
  plan.parameters = facts.parameters;
  plan.compression = facts.compression.name;
  plan.buckets = plan_buckets(facts.parameters, facts.buckets, facts.ready_order);
  plan.facts = facts_of_step(plan.ranks(), facts.parameters.size());
  const bool all_reduces = plan.exchange == ExchangeKind::all_reduce ||
                           (plan.exchange == ExchangeKind::local_steps && facts.local.after > 0);
  plan.follows_ready_order = all_reduces && facts.placement.runs_in_background();
  if (plan.exchange == ExchangeKind::shared) {
    plan.layout = lay_out(facts.parameters, facts.state_tensors);
    plan.shards = plan_shards(facts.parameters, *plan.layout, facts.placement.hosts);
  } else {
    plan.shards = replicate(facts.parameters, plan.ranks());
  }
  if (plan.exchange == ExchangeKind::host_means)
    plan.layout = lay_out(facts.parameters, std::vector<int>(facts.parameters.size(), 0));
  if (plan.exchange == ExchangeKind::reproducible) {
    plan.shard_tree = plan_shard_tree(facts.virtual_shards, plan.ranks());
    const int64_t unit = kAlignedElements * plan.ranks();
    for (const Bucket& bucket : plan.buckets.buckets)
      plan.ranges.push_back((bucket.elements + unit - 1) / unit * kAlignedElements);
  }
  StepPlanner(facts, plan).plan();
  return plan;
}

}  // namespace trireme::plan
