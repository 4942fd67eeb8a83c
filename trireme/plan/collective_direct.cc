#include <trireme/plan/collective_rounds.h>
#include <numeric>

namespace trireme::plan {

Round& add_round(CollectivePlan& plan) {
  return plan.rounds.emplace_back(static_cast<size_t>(plan.world_size));
}

void add_transfer(Round& round, int receiver, int chunk, std::vector<int> sources) {
  for (const int source : sources) {
    if (source != receiver) round[static_cast<size_t>(source)].sends.emplace_back(chunk, receiver);
  }
  round[static_cast<size_t>(receiver)].receives.push_back({chunk, std::move(sources)});
}

void add_transfers(Round& round, int receiver, int first, int last,
                   const std::vector<int>& sources) {
  for (int chunk = first; chunk < last; ++chunk) add_transfer(round, receiver, chunk, sources);
}

std::vector<int> numbers_below(int n) {
  std::vector<int> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

void add_naive_all_reduce(CollectivePlan& plan) {
  Round& round = add_round(plan);
  const std::vector<int> all_ranks = numbers_below(plan.world_size);
  for (const int receiver : all_ranks) add_transfer(round, receiver, 0, all_ranks);
}

void add_naive_broadcast(CollectivePlan& plan) {
  Round& round = add_round(plan);
  for (int receiver = 0; receiver < plan.world_size; ++receiver) {
    if (receiver != plan.root) add_transfer(round, receiver, 0, {plan.root});
  }
}

void add_direct_reduce_scatter(CollectivePlan& plan) {
  Round& round = add_round(plan);
  const std::vector<int> all_ranks = numbers_below(plan.world_size);
  for (const int owner : all_ranks) add_transfer(round, owner, owner, all_ranks);
}

void add_direct_all_gather(CollectivePlan& plan) {
  Round& round = add_round(plan);
  for (int owner = 0; owner < plan.world_size; ++owner) {
    for (int receiver = 0; receiver < plan.world_size; ++receiver) {
      if (receiver != owner) add_transfer(round, receiver, owner, {owner});
    }
  }
}

void add_direct_all_to_all(CollectivePlan& plan) {
  Round& round = add_round(plan);
  for (int receiver = 0; receiver < plan.world_size; ++receiver) {
    for (int owner = 0; owner < plan.world_size; ++owner) {
      if (receiver != owner)
        add_transfer(round, receiver, owner * plan.world_size + receiver, {owner});
    }
  }
}

}  // namespace trireme::plan
