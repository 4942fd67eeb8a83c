// Sharded data parallel: the replicas of a stage divide among them what each of them would have
// otherwise (Rajbhandari et al. 2019, "ZeRO: Memory Optimizations Toward Training Trillion
// Parameter Models", arXiv 1910.02054, section 5). docs/sharding.md says when to use which level.
#pragma once
#include <trireme/parallel/mesh/parameter_keeper.h>

namespace trireme {

// Level 1 divides the optimizer's state, and the masters of parameters in 16 bits; level 2 also
// gradients; level 3 also parameters. Each row of a parameter belongs to one rank of the data axis
// (plan/row_shards.h), which updates it. With one rank, or level 0, nothing is divided.
//
// Gradients of level 2 are reduced, and freed, when backward leaves a block; where its halves are
// apart, when the second one does. Parameters of level 3 are hollow (tensor/hollow.h) but for the
// blocks that run. So in levels 2 and 3 every replica runs forward and backward of the same blocks
// in the same order, or says that it has no sample (ParameterKeeper::forward_without_samples).
//
// COLLECTIVE along the data axis. Throws Error(unsupported) if the optimizer cannot update rows on
// their own, or if level 3 cannot free the memory of a parameter.
std::unique_ptr<ParameterKeeper> keep_shards(ParameterKeeperSetting setting, int level);

}  // namespace trireme
