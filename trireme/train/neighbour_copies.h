// Copies of the parts of a state in the memory of other workers: a checkpoint that is read without
// a disk, for parts that no other rank has (Wang et al. 2023, "Gemini", SOSP, section 4).
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/group.h>
#include <trireme/train/saver.h>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

namespace trireme {

// One rank's copies; one thread uses them. A rank keeps its own part of a step and that of another
// rank, whose neighbour it is. Until all ranks have the copies of a step, those of the step before
// stay, so some step is whole whenever ranks are lost.
class NeighbourCopies {
 public:
  // COLLECTIVE. Copies this rank's part, and begins to send it to the neighbour and to receive
  // another one. Training may go on meanwhile. `unit` ranks have the model once.
  void begin(const RunState& part, int generation, Group& group, int unit);
  bool is_under_way() const { return is_under_way_; }
  // COLLECTIVE. Waits for the messages of begin() on all ranks, as long as they take: they meet
  // after `at_once`, again and again. Older copies go.
  void finish(Group& group, Milliseconds at_once);
  // The generation has ended. Copies whose messages did not come are left out.
  void leave_generation();
  void clear() { copies_.clear(); }

  bool empty() const { return copies_.empty(); }
  // The parts that this rank has, its own and others'.
  std::vector<const RunState*> parts() const;

 private:
  // The parts of one step.
  struct Copy {
    RunState own;
    std::optional<RunState> others;
  };
  // The message beside the bytes of the tensors.
  struct Letter;

  // Lets errors of messages through.
  bool are_done_within(Milliseconds time);

  std::list<Copy> copies_;  // The newest one comes first.
  std::optional<RunState> arriving_;
  bool is_under_way_ = false;  // On all ranks or on none, also where nothing is to be sent.
  std::vector<WorkPtr> receives_, sends_;
};

}  // namespace trireme
