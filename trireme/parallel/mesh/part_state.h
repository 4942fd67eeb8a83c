// The state of an optimizer whose parameters are parts of whole tensors.
#pragma once
#include <trireme/parallel/engine.h>
#include <trireme/parallel/mesh/parameter_keeper.h>
#include <trireme/parallel/optimizer_view.h>
#include <vector>

namespace trireme {

// Adds the optimizer's tensors with the slices of the parameters that they belong to.
void show_parts(const OptimizerView& optimizer, const std::vector<OwnTensor>& parts,
                EngineState& state);
// Makes the tensors of the parts. `incoming.tensors` have the forms of whole tensors, also of
// parameters that this rank does not have.
void begin_load_parts(OptimizerView& optimizer, const std::vector<OwnTensor>& parts,
                      const IncomingState& incoming);

}  // namespace trireme
