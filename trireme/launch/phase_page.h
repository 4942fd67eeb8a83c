// Where a process writes what it is doing: relaxed stores into a page that its launcher sees too,
// also after the process was killed. Heartbeats send the same words to a coordinator on another
// host.
#pragma once
#include <trireme/launch/phase.h>
#include <trireme/net/shared_memory.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::launch {

class PhasePage {
 public:
  // A page for a child process, which inherits descriptor() and finds it by handle() in
  // TRIREME_PHASE_PAGE. Throws Error(io).
  static std::shared_ptr<PhasePage> for_child();
  int descriptor() const { return memory_.descriptor(); }
  std::string handle() const;
  // The launcher's page, for the first of its descendants that asks; for any other, and without a
  // launcher, one of its own.
  static std::shared_ptr<PhasePage> of_this_process();
  PhasePage();  // Of this process alone.
  ~PhasePage();

  // The writer: one thread at a time. A clock reading and some stores each.
  void set(Phase phase, int64_t step);
  void set(Phase phase);  // The step stays.
  int64_t next_collective();
  void enter(int64_t number, std::string_view operation,
             int64_t bytes);  // It waits for the others from now on,
  void wait_on();             // and again, after
  void work_on();             // it came through one wait of several.
  void leave();

  // Any thread of the writer: from begin_save() to end_save() the checkpoint of this step is being
  // written. Several may overlap; the one that began last is told.
  void begin_save(int64_t step);
  void end_save();

  // Any thread and process. Phase, step and number belong together always. Of a process that is, or
  // died, between two stores the operation is left out, and times may be those of the moment
  // before. Empty: nobody has written.
  std::optional<PhaseNow> read() const;

 private:
  struct Words;
  explicit PhasePage(net::SharedMemory memory);
  Words& words() const;
  void turn();  // Time until now belongs to what was.
  void publish();
  void tell_times();

  net::SharedMemory memory_;
  // The writer's own.
  PhaseAt at_;
  std::chrono::steady_clock::time_point since_;
  PhaseTimes times_;
  int64_t steps_begun_ = 0;
  double work_told_ = 0;
};

}  // namespace trireme::launch
