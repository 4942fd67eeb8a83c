#include <trireme/plan/collective_rounds.h>

namespace trireme::plan {

// In the round of distance d, each place that is an odd multiple of d is added to the place d
// before it. Its work is then finished.
void add_tree_reduce(CollectivePlan& plan, const std::vector<int>& ranks) {
  const size_t n = ranks.size();
  for (size_t distance = 1; distance < n; distance *= 2) {
    Round& round = add_round(plan);
    for (size_t place = 0; place + distance < n; place += 2 * distance)
      add_transfers(round, ranks[place], 0, plan.chunks, {ranks[place], ranks[place + distance]});
  }
}

// The same tree downwards: in each round half of the remaining places get their copy.
void add_tree_broadcast(CollectivePlan& plan, const std::vector<int>& ranks) {
  const int n = static_cast<int>(ranks.size());
  if (n == 1) return;
  for (int distance = largest_power_of_two(n - 1); distance >= 1; distance /= 2) {
    Round& round = add_round(plan);
    for (int place = 0; place + distance < n; place += 2 * distance)
      add_transfers(round, ranks[static_cast<size_t>(place + distance)], 0, plan.chunks,
                    {ranks[static_cast<size_t>(place)]});
  }
}

}  // namespace trireme::plan
