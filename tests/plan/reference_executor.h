// Executes a CollectivePlan on vectors in memory, by the plan alone.
#pragma once
#include <trireme/plan/collective_plan.h>
#include <algorithm>
#include <vector>

namespace trireme::plan {

template <typename T>
using Tensors = std::vector<std::vector<T>>;  // [rank][element]

template <typename T>
Tensors<T> execute(const CollectivePlan& plan, Tensors<T> tensors) {
  const auto elements = static_cast<int64_t>(tensors.at(0).size());
  for (const std::vector<RankRound>& round : plan.rounds) {
    // Every rank reads the values that the others held at the start of the round.
    const Tensors<T> before = tensors;
    for (size_t rank = 0; rank < round.size(); ++rank) {
      for (const auto& [chunk, sources] : round[rank].receives) {
        const auto [first, last] = plan.chunk_range(chunk, elements);
        for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
          T sum = before.at(static_cast<size_t>(sources.at(0))).at(i);
          for (size_t s = 1; s < sources.size(); ++s)
            sum += before.at(static_cast<size_t>(sources[s])).at(i);
          tensors[rank].at(i) = sum;
        }
      }
    }
  }
  return tensors;
}

// The layouts of `n` ranks on hosts: all on one, each on its own, in pairs, unevenly, and dealt
// out in turn.
inline std::vector<std::vector<int>> host_layouts(int n) {
  std::vector<std::vector<int>> layouts(6);
  for (int rank = 0; rank < n; ++rank) {
    layouts[1].push_back(rank);
    layouts[2].push_back(rank / 2);
    layouts[3].push_back(rank == 0 ? 7 : rank < 3 ? 1 : rank < 4 ? 3 : 2);
    layouts[4].push_back(rank % 2);
    layouts[5].push_back((n - rank) % 3);
  }
  return layouts;
}

// Calls visit(plan) for every collective, algorithm, world size from 1 to `most`, root of a
// broadcast, and layout of hosts where the algorithm looks at it.
template <typename Visit>
void for_each_plan(int most, Visit visit) {
  for (const Collective collective : all_collectives()) {
    for (const Algorithm algorithm : algorithms_of(collective)) {
      for (int n = 1; n <= most; ++n) {
        const int roots = collective == Collective::broadcast ? n : 1;
        const auto layouts = algorithm == Algorithm::hierarchical
                                 ? host_layouts(n)
                                 : std::vector<std::vector<int>>(1);
        for (int root = 0; root < roots; ++root) {
          for (const auto& hosts : layouts)
            visit(plan_collective(collective, algorithm, n, root, hosts));
        }
      }
    }
  }
}

}  // namespace trireme::plan
