#include <trireme/plan/collective_rounds.h>
#include <algorithm>

namespace trireme::plan {
namespace {

// The 2^k ranks that exchange with partners at power-of-two distances, for any n. If n is not a
// power of two, the extra ranks 1, 3, 5, ... are represented by their left neighbours (Thakur,
// Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005,
// section 4).
class Core {
 public:
  explicit Core(int n) : size_(largest_power_of_two(n)), extra_(n - size_) {}
  int size() const { return size_; }
  int extra() const { return extra_; }
  // The rank at place i. Place i represents the ranks rank(i) .. rank(i + 1) - 1: itself and, at
  // the first places, one extra rank.
  int rank(int i) const { return i < extra_ ? 2 * i : i + extra_; }

 private:
  int size_, extra_;
};

std::vector<int> ascending(int a, int b) { return {std::min(a, b), std::max(a, b)}; }

// The extra ranks add their tensors to their left neighbours.
void add_fold(CollectivePlan& plan, const Core& core) {
  if (core.extra() == 0) return;
  Round& round = add_round(plan);
  for (int i = 0; i < core.extra(); ++i)
    add_transfers(round, core.rank(i), 0, plan.chunks, {core.rank(i), core.rank(i) + 1});
}

// The extra ranks take the whole result from their left neighbours.
void add_unfold(CollectivePlan& plan, const Core& core) {
  if (core.extra() == 0) return;
  Round& round = add_round(plan);
  for (int i = 0; i < core.extra(); ++i)
    add_transfers(round, core.rank(i) + 1, 0, plan.chunks, {core.rank(i)});
}

// Halving and doubling work on runs of places; edge(i) is the first chunk of place i.
template <typename Edge>
void add_halving(CollectivePlan& plan, const Core& core, Edge edge) {
  for (int distance = core.size() / 2; distance >= 1; distance /= 2) {
    Round& round = add_round(plan);
    for (int i = 0; i < core.size(); ++i) {
      // Place i still adds up for a run of places; this is the half of the run in which it lies.
      const int kept = i & ~(distance - 1);
      add_transfers(round, core.rank(i), edge(kept), edge(kept + distance),
                    ascending(core.rank(i), core.rank(i ^ distance)));
    }
  }
}

template <typename Edge>
void add_doubling(CollectivePlan& plan, const Core& core, Edge edge) {
  for (int distance = 1; distance < core.size(); distance *= 2) {
    Round& round = add_round(plan);
    for (int i = 0; i < core.size(); ++i) {
      const int partner = i ^ distance;
      // The first place whose chunks the partner holds by now.
      const int held = partner & ~(distance - 1);
      add_transfers(round, core.rank(i), edge(held), edge(held + distance), {core.rank(partner)});
    }
  }
}

}  // namespace

int largest_power_of_two(int n) {
  int power = 1;
  while (power <= n / 2) power *= 2;
  return power;
}

void add_recursive_doubling_all_reduce(CollectivePlan& plan) {
  const Core core(plan.world_size);
  add_fold(plan, core);
  for (int distance = 1; distance < core.size(); distance *= 2) {
    Round& round = add_round(plan);
    for (int i = 0; i < core.size(); ++i)
      add_transfers(round, core.rank(i), 0, plan.chunks,
                    ascending(core.rank(i), core.rank(i ^ distance)));
  }
  add_unfold(plan, core);
}

void add_halving_doubling_all_reduce(CollectivePlan& plan) {
  const Core core(plan.world_size);
  const auto edge = [](int place) { return place; };
  add_fold(plan, core);
  add_halving(plan, core, edge);
  add_doubling(plan, core, edge);
  add_unfold(plan, core);
}

// The chunk of an extra rank ends on its left neighbour, which sends it back in a last round.
void add_recursive_halving_reduce_scatter(CollectivePlan& plan) {
  const Core core(plan.world_size);
  add_fold(plan, core);
  add_halving(plan, core, [&](int place) { return core.rank(place); });
  if (core.extra() == 0) return;
  Round& round = add_round(plan);
  for (int i = 0; i < core.extra(); ++i)
    add_transfer(round, core.rank(i) + 1, core.rank(i) + 1, {core.rank(i)});
}

// In a first round the chunk of an extra rank goes to its left neighbour. In a last round the
// extra rank takes all other chunks from there.
void add_recursive_doubling_all_gather(CollectivePlan& plan) {
  const Core core(plan.world_size);
  if (core.extra() > 0) {
    Round& round = add_round(plan);
    for (int i = 0; i < core.extra(); ++i)
      add_transfer(round, core.rank(i), core.rank(i) + 1, {core.rank(i) + 1});
  }
  add_doubling(plan, core, [&](int place) { return core.rank(place); });
  if (core.extra() == 0) return;
  Round& round = add_round(plan);
  for (int i = 0; i < core.extra(); ++i) {
    const int left = core.rank(i), extra = left + 1;
    add_transfers(round, extra, 0, extra, {left});
    add_transfers(round, extra, extra + 1, plan.chunks, {left});
  }
}

}  // namespace trireme::plan
