// Parameters and buffers without dimensions. They have no slices, so every stage has the values of
// all of them.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/parallel/mesh/stage.h>
#include <trireme/parallel/module_state.h>
#include <vector>

namespace trireme {

// Both COLLECTIVE along the pipeline: `stages` is its group, and `own` the stage of this rank.
// Gives each stage the values of those tensors that have no dimensions, from the first stage that
// has them.
void share_scalars(Group& stages, const Stage& own, const std::vector<NamedTensor>& tensors);
// The same for parameters that are trained, `scalars`, in one message.
void share_trained_scalars(Group& stages, const Stage& own,
                           const std::vector<NamedTensor>& scalars);

}  // namespace trireme
