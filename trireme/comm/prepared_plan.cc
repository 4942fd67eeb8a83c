#include <trireme/comm/prepared_plan.h>
#include <algorithm>

namespace trireme::comm {
namespace {

bool overwrites_what_is_read(const std::vector<plan::RankRound>& round) {
  for (size_t rank = 0; rank < round.size(); ++rank) {
    for (const plan::Transfer& receive : round[rank].receives)
      if (plan::is_read_by_others(round[rank], static_cast<int>(rank), receive.chunk)) return true;
  }
  return false;
}

}  // namespace

PreparedPlan::PreparedPlan(plan::CollectivePlan ready) : plan(std::move(ready)) {
  for (const auto& round : plan.rounds) staged.push_back(overwrites_what_is_read(round));
}

PlanChoice::PlanChoice(const std::string& path, int ranks, std::vector<int> hosts,
                       const plan::CollectiveTable& table)
    : ranks_(ranks), hosts_(std::move(hosts)) {
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

const PreparedPlan& PlanChoice::with_root(plan::Algorithm algorithm, int root) const {
  const std::lock_guard lock(mutex_);
  auto& plan = broadcasts_[{algorithm, root}];
  if (!plan)
    plan = std::make_unique<const PreparedPlan>(
        plan::plan_collective(plan::Collective::broadcast, algorithm, ranks_, root, hosts_));
  return *plan;
}

}  // namespace trireme::comm
