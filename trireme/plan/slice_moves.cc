#include <trireme/plan/slice_moves.h>
#include <trireme/plan/slice_plan.h>
#include <algorithm>
#include <map>
#include <string_view>

namespace trireme::plan {

std::vector<SliceMove> plan_moves(std::span<const PlacedSlice> wanted,
                                  std::span<const PlacedSlice> held, Prefer prefer) {
  std::map<std::string_view, std::vector<size_t>> by_tensor;
  for (size_t i = 0; i < held.size(); ++i) by_tensor[held[i].slice.tensor].push_back(i);
  std::vector<SliceMove> moves;
  for (size_t to = 0; to < wanted.size(); ++to) {
    const TensorSlice& slice = wanted[to].slice;
    const int rank = wanted[to].rank;
    std::vector<size_t> holders = by_tensor[slice.tensor];
    if (prefer == Prefer::own)
      std::ranges::stable_partition(holders, [&](size_t i) { return held[i].rank == rank; });
    std::vector<TensorSlice> candidates;
    for (const size_t i : holders) candidates.push_back(held[i].slice);
    auto reads = plan_reads({&slice, 1}, candidates);
    for (auto& [stored, box] : reads.front())
      moves.push_back({holders[stored], to, std::move(box)});
  }
  return moves;
}

}  // namespace trireme::plan
