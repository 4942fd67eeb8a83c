// The state of an engine as a list of tensors, each with what it is: everything that writes,
// reads, moves or compares state works on this list, and knows no engine.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/json.h>
#include <trireme/checkpoint/parts.h>
#include <trireme/parallel/module_state.h>
#include <trireme/plan/tensor_slice.h>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// The role of a tensor, and how a run with another number of ranks takes it over.
enum class StateKind {
  // The same on every rank, or slices of one tensor.
  parameter,  // Of the model.
  buffer,     // Of the model.
  optimizer,  // "exp_avg/conv1.weight"
  archive,    // The bytes of an optimizer that has no names for its state. Rank 0's count, and
              // their number may differ between ranks.
  master,     // The float32 master of the parameter of this name.
  average,    // The moving average of the parameter of this name.
  common,     // Anything else.
  // Each rank has its own. While an elastic job goes on from memory, every rank keeps its own and
  // a newcomer starts anew. The rules below are for checkpoints.
  rank,      // Another number of ranks starts with rank 0's.
  residual,  // The sum over the ranks counts: another number of ranks divides it evenly.
};
bool is_of_model(StateKind kind);     // True for parameter and buffer.
bool is_of_one_rank(StateKind kind);  // True for rank and residual.

struct StateEntry {
  plan::TensorSlice slice;
  at::Tensor tensor;  // The values of the slice.
  StateKind kind = StateKind::common;
  // Another rank has the tensor, and its value here may be that of an earlier step until
  // Engine::prepare_to_read().
  bool is_foreign = false;
};
using StateView = std::vector<StateEntry>;

// The entry of a tensor that lies on one rank as a whole.
StateEntry whole(const std::string& name, const at::Tensor& tensor, StateKind kind);
// Appends whole tensors of one kind.
void append(StateView& view, const std::vector<NamedTensor>& tensors, StateKind kind);
std::vector<NamedTensor> tensors_of(const StateView& view, StateKind kind);
// The tensors that the update changes: each parameter, or its master if it has one, under the
// parameter's name.
std::vector<NamedTensor> updated_tensors(const StateView& view);

// The name of the entry in a checkpoint: "conv1.weight", "engine/master/conv1.weight",
// "rank3/error/conv1.weight". Only a tensor of a single rank has that rank in its name.
std::string name_in_file(const StateEntry& entry, int rank);

// The parameter that a tensor of the optimizer belongs to: "conv1.weight" of
// "exp_avg/conv1.weight". Empty if the name has no such form.
std::string parameter_of(const std::string& state_name);

// State that processes beside the ranks have, and write into checkpoints themselves.
struct StateElsewhere {
  int parts = 0;  // The last ones of a checkpoint (checkpoint/parts.h).
  // Its meaning in words. A checkpoint whose text is another one does not fit.
  std::string text;
  // On rank 0: they copy this state, and begin to write their parts. If that has to be begun
  // again, the part gets another attempt. Throws as checkpoints do.
  std::function<void(const std::filesystem::path& folder, int64_t step, checkpoint::Part& part)>
      write;
};

// All of an engine but its model's code: the tensors, and everything that is no tensor.
struct EngineState {
  StateView tensors;
  // Equal on every rank. The member "optimizer" has the optimizer's kind and counters
  // (OptimizerState); the other members are the engine's own.
  Json counters = Json::object();
  StateElsewhere elsewhere = {};
};

}  // namespace trireme
