// The state of a run beside the model, its buffers and the optimizer. It is stored in checkpoints
// and restored from them.
#pragma once
#include <trireme/base/json.h>
#include <trireme/comm/group.h>
#include <trireme/parallel/module_state.h>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trireme {

struct EngineState {
  // Equal on every rank: the loss scale and the number of steps.
  Json counters = Json::object();
  // Tensors that are equal on every rank: averages and masters. They are filled in place.
  std::vector<NamedTensor> shared;
  // This rank's own tensors: errors of compression. Names and sizes are equal on every rank. They
  // are filled in place.
  std::vector<NamedTensor> own;
};

// These two functions return the tensors under their names in a file:
// "engine/<shared>", "rank3/<own>".
std::vector<NamedTensor> shared_in_file(const EngineState& state);
std::vector<NamedTensor> own_in_file(const EngineState& state, int rank);
// COLLECTIVE. Returns the own tensors of every rank on rank 0, under those names, and
// nothing on other ranks.
std::vector<NamedTensor> collect_own(const EngineState& state, Group& group);
std::string shared_name(const std::string& name);  // "engine/<name>"
bool belongs_to_engine(const std::string& name);   // True for the names above.

// COLLECTIVE. Fills `state` from the tensors that rank 0 has read, by name; other ranks pass
// nothing. The checkpoint was written by `saved_ranks` ranks. Returns the shared names that were
// found, the same on every rank. If the number of ranks differs, tensors "error/..." are added up
// and divided evenly among the ranks; for all other own tensors every rank takes those of rank 0.
// Own tensors that do not fit (another compression) start anew, and rank 0 logs that.
std::set<std::string> restore(EngineState& state, const std::map<std::string, at::Tensor>& saved,
                              int saved_ranks, Group& group);

// COLLECTIVE. Returns rank 0's value on every rank.
Json broadcast_value(Group& group, const Json& value);

}  // namespace trireme
