// The forms of a model's whole parameters, on a rank that has parts of them.
#pragma once
#include <trireme/comm/mesh_rank.h>
#include <trireme/parallel/mesh/stage.h>
#include <trireme/plan/division.h>
#include <vector>

namespace trireme {

// The parameters of the whole model, in its order. An engine may have divided its layers before.
// Throws Error(invalid_argument) if layers are to be divided, and the model has none that can be.
std::vector<plan::TensorSpec> forms_of(const MeshRank& mesh, const Model& model,
                                       const ModuleState& whole);
// Parameters of 16 bits are updated by their masters.
std::vector<plan::TensorSpec> as_updated(std::vector<plan::TensorSpec> specs);
Json to_json(const std::vector<plan::TensorSpec>& specs);

// COLLECTIVE. Whether no rank of the group has memory for any of the tensors.
bool are_hollow_on_all(const std::vector<NamedTensor>& tensors, Group& group);

// The first block with a parameter that is trained; the number of blocks if there is none.
size_t first_trained(const std::vector<BlockTensors>& tensors,
                     const std::vector<plan::TensorSpec>& forms);

// [block]: the places of its parameters in `forms`. And the types of these.
std::vector<std::vector<int>> numbers_by_block(const std::vector<BlockTensors>& tensors,
                                               const std::vector<plan::TensorSpec>& forms);
std::vector<plan::DType> types_of(const std::vector<plan::TensorSpec>& forms);

}  // namespace trireme
