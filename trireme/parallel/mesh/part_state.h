// The state of an optimizer whose parameters are parts of whole tensors.
#pragma once
#include <trireme/parallel/engine.h>
#include <trireme/parallel/mesh/parameter_keeper.h>
#include <trireme/parallel/optimizer_view.h>
#include <string>
#include <vector>

namespace trireme {

// The boxes of the rows [from, to) of a tensor that consists of `boxes`. At least one, which may
// be empty.
std::vector<plan::TensorSlice> rows_of(const std::vector<plan::TensorSlice>& boxes, int64_t from,
                                       int64_t to);
// Adds a tensor that consists of these boxes of the whole tensor `name`: an entry for each.
void show_boxes(const std::string& name, const std::vector<plan::TensorSlice>& boxes,
                const at::Tensor& tensor, StateKind kind, StateView& view);

// Adds the optimizer's tensors with the boxes of the parameters that they belong to.
void show_parts(const OptimizerView& optimizer, const std::vector<OwnTensor>& parts,
                EngineState& state);
// Makes the tensors of the parts. `incoming.tensors` have the forms of whole tensors, also of
// parameters that this rank does not have.
void begin_load_parts(OptimizerView& optimizer, const std::vector<OwnTensor>& parts,
                      const IncomingState& incoming);

}  // namespace trireme
