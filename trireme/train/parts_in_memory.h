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
  // COLLECTIVE. `own` are the parts that this rank has: its state, and copies of its own and
  // others' parts. They must outlive this object. Copies of a step before `least_step` do not
  // count.
  PartsInMemory(std::vector<const RunState*> own, int64_t least_step, Group& group);

  // Says why no state can be made up; empty if one can. The other calls need that.
  const std::string& missing() const { return missing_; }
  // The rank whose progress and counters count, and its part that has them.
  int first_holder() const { return holders_.front().rank; }
  const RunState& first_part() const { return *own_[holders_.front().source]; }
  // Whether the state is made up of copies, and not of what the ranks had at the end.
  bool are_copies() const { return are_copies_; }
  // Says what was lost with workers, if that is why copies count.
  const std::string& lost() const { return lost_; }
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
    int rank = 0;       // In the new group.
    size_t source = 0;  // Its number among the parts of that rank.
    Json told;
  };
  struct Held {
    size_t source = 0;
    size_t entry = 0;  // An index in RunState::held of that part.
    StateKind kind = StateKind::common;
    plan::DType dtype = plan::DType::float32;
  };
  void choose(const std::vector<Json>& told, int64_t least_step);
  void choose_kept(const std::vector<Holder>& kept);
  void choose_copies(const std::vector<Holder>& copies);
  void list_tensors();
  void move(const std::vector<plan::PlacedSlice>& wanted, const std::vector<at::Tensor>& targets,
            plan::Prefer prefer) const;

  const std::vector<const RunState*> own_;
  Group& group_;
  std::string missing_, lost_;
  bool are_copies_ = false;
  std::vector<Holder> holders_;  // Those whose parts make up the state, by their former ranks.
  std::vector<plan::PlacedSlice> slices_;  // All that they hold.
  std::vector<Held> held_;                 // The same, by index.
};

}  // namespace trireme
