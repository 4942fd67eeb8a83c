// Shows the optimizer's state of a model whose tensors lie on several ranks: each rank lists every
// tensor, with an empty slice where another rank has it.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/parallel/engine.h>
#include <trireme/parallel/state_view.h>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trireme {

// The entry of a tensor that this rank does not have.
StateEntry entry_without_values(const std::string& name, const std::vector<int64_t>& shape,
                                at::ScalarType type, StateKind kind);

// Adds the entries of one kind that are in `own` to a view, in the order of the model. `forms` are
// those of the whole tensors; one that is not in `own` has no values, unless it has no dimensions.
void add_model_tensors(StateView& view, const StateView& own,
                       const std::vector<NamedTensor>& tensors,
                       const std::vector<plan::TensorSpec>& forms, StateKind kind);

// Used by one thread. Entries of the model are not its concern.
class ForeignState {
 public:
  // `parameters` of the whole model. Those of 16 bits have masters on the ranks that own them.
  explicit ForeignState(const std::vector<plan::TensorSpec>& parameters);

  // COLLECTIVE. Learns from `own`, the state of each rank, what the others have, and the
  // optimizer's counters of all. A tensor without dimensions cannot be divided, so every rank gets
  // its value.
  void learn(const EngineState& own, Group& group);
  // The same from a state that all ranks are about to load.
  void learn(const IncomingState& incoming);
  // Completes the entries and counters of this rank. All ranks then have the same entries in the
  // same order, but for their slices.
  EngineState complete(EngineState own) const;

 private:
  struct Form {
    std::string name;
    std::vector<int64_t> shape;
    at::ScalarType type = at::kFloat;
    StateKind kind = StateKind::optimizer;
    at::Tensor copy = {};  // The value, if there are no dimensions.
  };
  std::set<std::string> parameters_;
  std::map<std::string, Form> forms_;  // By name in a file.
  Json counters_;                      // The optimizer's counters on all ranks, or null.
};

}  // namespace trireme
