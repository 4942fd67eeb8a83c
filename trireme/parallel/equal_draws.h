// Finds ranks that draw the same random numbers, as after torch::manual_seed(seed) behind an
// engine: their dropout and noise are then the same, and nothing else tells.
#pragma once
#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <trireme/comm/group.h>
#include <cstdint>
#include <vector>

namespace trireme {

// The thread of the loop uses it.
class EqualDraws {
 public:
  // Looks at the default generators of the host and of `device`.
  explicit EqualDraws(at::Device device);

  // COLLECTIVE. Called once behind each exchange of gradients. In one of 64 pairs of calls, at
  // first in the first two, the ranks compare what they have drawn between the two. Ranks whose
  // generators began alike and moved alike have drawn the same: rank 0 warns once and names them.
  // A generator that was seeded in between, or did not move, tells nothing.
  void look(Group& group, int64_t step);

 private:
  struct Look {
    uint64_t seed = 0, state = 0;  // The latter is a hash.
  };
  std::vector<Look> looks() const;

  static constexpr int64_t kCallsBetweenLooks = 64;
  std::vector<at::Generator> generators_;
  std::vector<Look> before_;
  int64_t calls_ = 0;
  bool has_told_ = false;  // The same on all ranks.
};

}  // namespace trireme
