// Makes the faults of a schedule happen in this process. No torch.
//
// Once a run: before a fault strikes, a mark is left in `marks`, which the worker's replacement,
// the next generation and a run that resumes in the same checkpoint folder find; what has a mark
// does not strike again. So a step that is done again after its kill goes through. (slow is a state
// and not an event: it has no mark.)
#pragma once
#include <trireme/train/faults.h>
#include <filesystem>
#include <functional>
#include <vector>

namespace trireme {

// What strikes. Those of the process are given; the run brings what reaches into its carrier,
// checkpoint and parameters.
struct FaultActions {
  std::function<void()> kill;              // SIGKILL to itself.
  std::function<void(Milliseconds)> stop;  // SIGSTOP to itself, SIGCONT after the time; 0: never.
  std::function<void(Milliseconds)> sleep;
  std::function<void(int64_t step)>
      corrupt;  // One bit of what this rank got of the step's collective.
  std::function<void(int peer)> drop_link;  // The connection to that rank is shut.
  std::function<void()>
      fill_disk;  // The next write of a checkpoint fails as if the disk were full.
};
FaultActions process_actions();

// One for each replica; its thread alone calls it.
class Injector {
 public:
  // `marks` is made when the first fault strikes; empty: this object alone remembers. Throws
  // Error(unsupported) naming a fault whose action is not there.
  Injector(std::vector<Fault> schedule, std::filesystem::path marks, FaultActions actions);

  // The replica `rank` comes to `phase` of `step`; what is due there strikes now. Cheap where
  // nothing is due. Throws Error(io) if no mark can be left: without it the fault would strike for
  // ever.
  void at(int rank, Phase phase, int64_t step);

 private:
  struct Entry {
    Fault fault;
    std::string mark;  // Name of its file.
    bool struck = false;
  };
  bool claim(Entry& entry, int rank);
  void strike(const Fault& fault, int rank, int64_t step) const;

  std::vector<Entry> entries_;
  std::filesystem::path marks_;
  FaultActions actions_;
};

}  // namespace trireme
