// What a run keeps beside model, buffers and optimizer state, and its way into a checkpoint and
// back.
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
  Json counters =
      Json::object();  // Equal on every rank: the loss scale, how many steps there were.
  std::vector<NamedTensor> shared;  // Equal on every rank: averages, masters. Filled in place.
  std::vector<NamedTensor> own;     // Of this rank, with the same names and sizes on every rank:
                                    // errors of compression. Likewise.
};

// By names of a file: "engine/<shared>", "rank3/<own>".
std::vector<NamedTensor> shared_in_file(const EngineState& state);
std::vector<NamedTensor> own_in_file(const EngineState& state, int rank);
// COLLECTIVE. On rank 0 every rank's own tensors at once, by those names; elsewhere none.
std::vector<NamedTensor> collect_own(const EngineState& state, Group& group);
std::string shared_name(const std::string& name);  // "engine/<name>"
bool belongs_to_engine(const std::string& name);   // One of the names above.

// COLLECTIVE. Fills `state` from what rank 0 read (by name; others pass nothing), written by
// `saved_ranks` ranks. Returns the shared names that were there, the same on every rank. With
// another number of ranks "error/..." are added up and shared out evenly, of all else everybody
// takes rank 0's. Own tensors that do not fit (another compression) start anew, which rank 0 says.
std::set<std::string> restore(EngineState& state, const std::map<std::string, at::Tensor>& saved,
                              int saved_ranks, Group& group);

// COLLECTIVE. Rank 0's value becomes everybody's.
Json share(Group& group, const Json& value);

}  // namespace trireme
