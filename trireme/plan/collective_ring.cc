#include <trireme/plan/collective_rounds.h>

namespace trireme::plan {

// Block b starts at the place after place b and moves one place to the right per round. Each rank
// adds its own part; place b is the last to do so.
void add_ring_reduce_scatter(CollectivePlan& plan, const std::vector<int>& ranks,
                             const Blocks& blocks) {
  const size_t n = ranks.size();
  for (size_t step = 0; step + 1 < n; ++step) {
    Round& round = add_round(plan);
    for (size_t block = 0; block < n; ++block) {
      const int left = ranks[(block + 1 + step) % n];
      const int receiver = ranks[(block + 2 + step) % n];
      for (const int chunk : blocks[block]) add_transfer(round, receiver, chunk, {left, receiver});
    }
  }
}

// Block b starts at place b and moves one place to the right per round.
void add_ring_all_gather(CollectivePlan& plan, const std::vector<int>& ranks,
                         const Blocks& blocks) {
  const size_t n = ranks.size();
  for (size_t step = 0; step + 1 < n; ++step) {
    Round& round = add_round(plan);
    for (size_t block = 0; block < n; ++block) {
      for (const int chunk : blocks[block])
        add_transfer(round, ranks[(block + step + 1) % n], chunk, {ranks[(block + step) % n]});
    }
  }
}

// The chunks move along a chain from the root: rank root+1 takes chunk 1 while rank root+2 takes
// chunk 0.
void add_chain_broadcast(CollectivePlan& plan) {
  const int n = plan.world_size;
  const size_t before = plan.rounds.size();
  for (int i = 0; i < plan.chunks + n - 2; ++i) add_round(plan);
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    for (int hop = 0; hop < n - 1; ++hop) {
      const int left = (plan.root + hop) % n;
      add_transfer(plan.rounds[before + static_cast<size_t>(chunk + hop)], (left + 1) % n, chunk,
                   {left});
    }
  }
}

}  // namespace trireme::plan
