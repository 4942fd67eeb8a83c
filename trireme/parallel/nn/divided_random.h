// Random numbers where activations are divided along a tensor axis.
#pragma once
#include <trireme/parallel/nn/exchanges.h>
#include <trireme/tensor/replica_random.h>
#include <optional>

namespace trireme::nn {

// The ranks of a tensor axis draw the same numbers, so that dropout of a whole activation is the
// same on all of them: an engine gives them equal seeds. Where columns or tokens are divided, each
// rank needs numbers of its own:
//
//   { const DividedRandom apart(in->ranks()); x = torch::dropout(x, rate, is_training()); }
//
// While the object lives, random operations of the thread draw from a generator of this rank. Its
// seed comes from one draw of the common generator, so that the ranks draw alike again afterwards,
// and a computation that is repeated from a mark draws the same. (Shoeybi et al. 2019, appendix
// B.2, keeps two generators for that.) A null group changes nothing and draws nothing.
class DividedRandom {
 public:
  explicit DividedRandom(const Ranks& ranks);

 private:
  std::optional<ReplicaRandom> random_;
};

}  // namespace trireme::nn
