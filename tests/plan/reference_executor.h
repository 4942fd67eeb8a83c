// Executes a CollectivePlan on vectors in memory, with nothing but what the plan says.
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
    const Tensors<T> before = tensors;  // Every rank reads what the others held at the round's start.
    for (size_t rank = 0; rank < round.size(); ++rank) {
      for (const auto& [chunk, sources] : round[rank].receives) {
        const auto [first, last] = plan.chunk_range(chunk, elements);
        for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
          T sum = before.at(static_cast<size_t>(sources.at(0))).at(i);
          for (size_t s = 1; s < sources.size(); ++s) sum += before.at(static_cast<size_t>(sources[s])).at(i);
          tensors[rank].at(i) = sum;
        }
      }
    }
  }
  return tensors;
}

struct CollectiveCase {
  Collective collective;
  Algorithm algorithm;
};
inline std::vector<CollectiveCase> all_cases() {
  std::vector<CollectiveCase> cases;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast}) {
    for (const Algorithm algorithm : {Algorithm::naive, Algorithm::direct, Algorithm::ring}) {
      const bool refused = collective == Collective::broadcast && algorithm == Algorithm::direct;
      if (!refused) cases.push_back({collective, algorithm});
    }
  }
  return cases;
}

// Calls visit(plan) for every collective, algorithm, world size from 1 to `most`, and root of a broadcast.
template <typename Visit>
void for_each_plan(int most, Visit visit) {
  for (const auto& [collective, algorithm] : all_cases()) {
    for (int n = 1; n <= most; ++n) {
      const int roots = collective == Collective::broadcast ? n : 1;
      for (int root = 0; root < roots; ++root) visit(plan_collective(collective, algorithm, n, root));
    }
  }
}

}  // namespace trireme::plan
