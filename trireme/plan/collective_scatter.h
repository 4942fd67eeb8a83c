// Decides how ranks on several hosts reduce-scatter in two steps: first inside each host, then
// between hosts. Each rank sends (n-1)/n of the tensor in both steps together, the least that is
// possible. The functions are pure.
//
// In the first step the ranks of a host divide the blocks of the other hosts' ranks evenly among
// themselves: each of them adds up its own block and its portion of those blocks over the host. In
// the second step each rank sends the sums in its portion to the ranks that own them.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::plan {

class ScatterOverHosts {
 public:
  // `hosts`: [host]: its ranks, in ascending order. `block`: the elements of each rank's block.
  ScatterOverHosts(std::vector<std::vector<int>> hosts, int64_t block);

  // The ranks of other hosts, in ascending order. Their blocks, one after another, are what the
  // ranks of `host` divide.
  const std::vector<int>& others_of(int host) const { return others_[static_cast<size_t>(host)]; }
  // The elements of each portion of a host. The last portions may reach beyond the blocks.
  int64_t portion(int host) const { return portions_[static_cast<size_t>(host)]; }
  // The elements of the block of rank `to` that the rank at `place` of `host` adds up over its
  // host: [first, last) of that block. Empty if none. `to` is on another host.
  std::pair<int64_t, int64_t> part(int host, int place, int to) const;
  // The place of these elements in the portion.
  int64_t offset(int host, int place, int to) const;
  // The elements that the rank at `place` of `host` sends in the second step.
  int64_t sent_between_hosts(int host, int place) const;

 private:
  int64_t start_of(int host, int to) const;  // Of a block among those that the host divides.

  std::vector<std::vector<int>> hosts_, others_;
  std::vector<int64_t> portions_;
  int64_t block_;
};

}  // namespace trireme::plan
