// Gives every rank the optimizer state of one rank.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/parallel/optimizer.h>
#include <vector>

namespace trireme {

// COLLECTIVE. State, counters and learning rates of rank `root`'s optimizer. The optimizers of all
// ranks are of one kind, and have the same groups of `parameters`.
void take_optimizer_of(int root, Group& group, torch::optim::Optimizer& optimizer,
                       const std::vector<NamedTensor>& parameters);

}  // namespace trireme
