#include <trireme/comm/prepared_plan.h>
#include <numeric>

namespace trireme::comm {
namespace {

bool overwrites_what_is_read(const std::vector<plan::RankRound>& round) {
  for (size_t rank = 0; rank < round.size(); ++rank) {
    for (const plan::Transfer& receive : round[rank].receives)
      if (plan::is_read_by_others(round[rank], static_cast<int>(rank), receive.chunk)) return true;
  }
  return false;
}

std::vector<int64_t> count_sends(const plan::CollectivePlan& plan) {
  const int64_t row = int64_t{plan.chunks} + 1;
  std::vector<int64_t> below(static_cast<size_t>(plan.world_size * row));
  for (int rank = 0; rank < plan.world_size; ++rank) {
    const auto first = below.begin() + rank * row;
    for (const auto& round : plan.rounds) {
      for (const auto& [chunk, receiver] : round[static_cast<size_t>(rank)].sends)
        if (receiver != rank) ++first[chunk + 1];
    }
    std::partial_sum(first, first + row, first);
  }
  return below;
}

}  // namespace

PreparedPlan::PreparedPlan(plan::CollectivePlan ready)
    : plan(std::move(ready)), sends_below(count_sends(plan)) {
  for (const auto& round : plan.rounds) staged.push_back(overwrites_what_is_read(round));
}

// Chunks differ by at most one element, and the first ones are the longer ones. So every send
// carries the length of a shorter chunk, and those of the first chunks carry one element more.
int64_t PreparedPlan::bytes_sent(int rank, int64_t elements, int64_t element_bytes) const {
  const auto chunks = static_cast<size_t>(plan.chunks);
  const int64_t* const below = sends_below.data() + static_cast<size_t>(rank) * (chunks + 1);
  const int64_t shorter = elements / plan.chunks, longer_chunks = elements % plan.chunks;
  return (shorter * below[chunks] + below[longer_chunks]) * element_bytes;
}

PlanChoice::PlanChoice(const std::string& path, int ranks, std::vector<int> hosts,
                       const plan::CollectiveTable& table)
    : ranks_(ranks), hosts_(std::move(hosts)), table_(table) {
  for (const plan::Collective collective : plan::all_collectives()) {
    Choice& choice = choices_[collective];
    choice.sizes = table.choices(path, collective, ranks_, hosts_);
    for (const plan::SizeChoice& size : choice.sizes)
      choice.plans.emplace_back(
          plan::plan_collective(collective, size.algorithm, ranks_, 0, hosts_));
  }
}

const PreparedPlan& PlanChoice::choose(plan::Collective collective, int64_t bytes,
                                       int root) const {
  const Choice& choice = choices_.at(collective);
  const size_t i = plan::choose(choice.sizes, bytes);
  return root == 0 ? choice.plans[i] : with_root(choice.sizes[i].algorithm, root);
}

int64_t PlanChoice::bytes_sent(int rank, plan::Collective collective, int64_t elements,
                               int64_t element_bytes, int root) const {
  return choose(collective, elements * element_bytes, root)
      .bytes_sent(rank, elements, element_bytes);
}

const PreparedPlan& PlanChoice::with_root(plan::Algorithm algorithm, int root) const {
  const std::lock_guard lock(mutex_);
  auto& plan = broadcasts_[{algorithm, root}];
  if (!plan)
    plan = std::make_unique<const PreparedPlan>(
        plan::plan_collective(plan::Collective::broadcast, algorithm, ranks_, root, hosts_));
  return *plan;
}

}  // namespace trireme::comm
