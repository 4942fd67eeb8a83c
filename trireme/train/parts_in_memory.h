// The state of a run whose ranks have only parts of it, in the memory of the ranks that are left
// after a worker was lost: is it whole, and how does each rank get its part of it?
//
// A step can be cut short between the updates of two ranks. Parts of different steps never make up
// a state: the newest step counts of which every part is there, or the one before it.
#pragma once
#include <trireme/base/json.h>
#include <trireme/comm/group.h>
#include <trireme/parallel/state_view.h>
#include <trireme/plan/slice_moves.h>
#include <trireme/plan/tensor_spec.h>
#include <trireme/train/saver.h>
#include <set>
#include <string>
#include <vector>

namespace trireme {

// Used by one thread. The answers are the same on every rank.
class PartsInMemory {
 public:
  // COLLECTIVE. `kept` is this rank's state, or null; it must outlive this object.
  PartsInMemory(const RunState* kept, Group& group);

  // Says why no state can be made up; empty if one can. The other calls need that.
  const std::string& missing() const { return missing_; }
  // The rank whose progress and counters count.
  int first_holder() const { return holders_.front().rank; }
  // Puts each parameter's counters in: they come from a rank that has the parameter.
  void complete(Json& counters) const;
  // The forms of the whole tensors that do not belong to the model.
  std::vector<plan::TensorSpec> others() const;
  // COLLECTIVE. Fills the entries; each rank names those that it wants. Entries of the model must
  // be there; others that no rank has stay as they are. Returns the names in a file of the tensors
  // that were there.
  std::set<std::string> fill(const StateView& wanted) const;

 private:
  struct Holder {
    int rank = 0;  // In the new group.
    Json told;
  };
  struct Held {
    size_t entry = 0;  // An index in its rank's RunState::held.
    StateKind kind = StateKind::common;
    plan::DType dtype = plan::DType::float32;
  };
  void choose(const std::vector<Json>& told);
  void list_tensors();
  void move(const std::vector<plan::PlacedSlice>& wanted, const std::vector<at::Tensor>& targets,
            plan::Prefer prefer) const;

  const RunState* const kept_;
  Group& group_;
  std::string missing_;
  std::vector<Holder> holders_;  // Those whose parts make up the state, by their former ranks.
  std::vector<plan::PlacedSlice> slices_;  // All that they hold.
  std::vector<Held> held_;                 // The same, by index.
};

}  // namespace trireme
