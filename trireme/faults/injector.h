// Makes the faults of a schedule happen in this process.
//
// A fault strikes once in a run: before it strikes, it leaves a mark in `marks`. The worker's
// replacement, the next generation and a run that resumes in the same checkpoint folder find the
// mark, and the fault does not strike again. Therefore a step that is repeated after its kill
// succeeds. (slow is a state and not an event, so it has no mark.)
#pragma once
#include <trireme/faults/faults.h>
#include <filesystem>
#include <functional>
#include <vector>

namespace trireme {

// The actions of the faults. process_actions() gives those that concern the process; the run adds
// those that concern its connections, checkpoints and parameters.
struct FaultActions {
  std::function<void()> kill;  // Sends SIGKILL to this process.
  // Sends SIGSTOP to this process, and SIGCONT after the time; 0: never.
  std::function<void(Milliseconds)> stop;
  std::function<void(Milliseconds)> sleep;
  // Flips one bit of this rank's result of the step's collective.
  std::function<void(int64_t step)> corrupt;
  std::function<void(int peer)> drop_link;  // Shuts the connection to that rank.
  // Makes the next write of a checkpoint fail as if the disk were full.
  std::function<void()> fill_disk;
  // Called before a fault strikes; may be empty. slow is told when it begins.
  std::function<void(const Fault& fault, int64_t step)> tell;
};
FaultActions process_actions();

// Each replica has its own injector, and only the replica's thread calls it.
class Injector {
 public:
  // The folder `marks` is created when the first fault strikes. If it is empty, only this object
  // remembers the marks. Throws Error(unsupported) that names a fault without an action.
  Injector(std::vector<Fault> schedule, std::filesystem::path marks, FaultActions actions);

  // Called when replica `rank` enters `phase` of `step`; faults that are due there strike now.
  // Cheap if none is due. Throws Error(io) if no mark can be left, because the fault would then
  // strike for ever.
  void at(int rank, Phase phase, int64_t step);

 private:
  struct Entry {
    Fault fault;
    std::string mark;  // The name of its file.
    bool struck = false;
    bool told = false;
  };
  bool claim(Entry& entry, int rank);
  void strike(Entry& entry, int rank, int64_t step) const;

  std::vector<Entry> entries_;
  std::filesystem::path marks_;
  FaultActions actions_;
};

}  // namespace trireme
