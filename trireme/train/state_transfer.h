// Moves the tensors of a StateView between ranks, and between a run and what was saved.
#pragma once
#include <trireme/base/json.h>
#include <trireme/comm/group.h>
#include <trireme/parallel/state_view.h>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trireme {

// COLLECTIVE. Returns every rank's tensors of single ranks on rank 0, by their names in a file,
// and nothing on other ranks.
std::vector<NamedTensor> collect_own(const StateView& view, Group& group);
// This rank's tensors of single ranks, by their names in a file.
std::vector<NamedTensor> own_in_file(const StateView& view, int rank);

// The tensors of an earlier state that rank 0 has.
struct SavedTensors {
  std::map<std::string, at::Tensor> by_name;  // By names in a file, without those of the model.
  // The number of ranks that wrote them; 0: tensors of single ranks are missing.
  int ranks = 0;
};
// COLLECTIVE. Fills the tensors of `view` from those that rank 0 has; other ranks pass nothing. It
// leaves out tensors of the model, and with `only_common` those of single ranks. Returns the names
// in a file of the tensors that are the same on every rank and were found. StateKind says what
// happens if another number of ranks saved. Tensors of single ranks that do not fit (another
// compression) start anew, and rank 0 logs that.
std::set<std::string> fill(const StateView& view, const SavedTensors& saved, bool only_common,
                           Group& group);

// COLLECTIVE. Returns the value of rank `root` on every rank.
Json broadcast_value(Group& group, const Json& value, int root = 0);
// COLLECTIVE. Returns the values of all ranks, in order, on every rank.
std::vector<Json> gather_values(Group& group, const Json& value);

}  // namespace trireme
