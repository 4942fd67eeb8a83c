// The page of shared memory where a process writes what it is doing, with relaxed stores. Its
// launcher reads the page, also after the process was killed. Heartbeats send the same facts to a
// coordinator on another host.
#pragma once
#include <trireme/net/shared_memory.h>
#include <trireme/watch/phase.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::watch {

class PhasePage {
 public:
  // Makes a page for a child process, which inherits descriptor() and finds the page by handle()
  // in TRIREME_PHASE_PAGE. Throws Error(io).
  static std::shared_ptr<PhasePage> for_child();
  int descriptor() const { return memory_.descriptor(); }
  std::string handle() const;
  // Returns the launcher's page to the first of its descendants that asks. Any other process, or
  // one without a launcher, gets a page of its own.
  static std::shared_ptr<PhasePage> of_this_process();
  PhasePage();  // A page that only this process sees.
  ~PhasePage();

  // One thread of the writing process at a time. Each call reads the clock and stores some words.
  void set(Phase phase, int64_t step);
  void set(Phase phase);  // Keeps the step.
  int64_t next_collective();
  int64_t collective() const { return begun_; }  // The newest number.
  // The thread enters a collective and waits for the others. A collective may have several waits:
  // work_on() ends one of them, wait_on() begins the next.
  void enter(int64_t number, std::string_view operation, int64_t bytes);
  void wait_on();
  void work_on();
  void leave();

  // Any thread of the writing process. From begin_save() to end_save() the checkpoint of this step
  // is being written. Several saves may overlap; read() tells the one that began last.
  void begin_save(int64_t step);
  void end_save();

  // Any thread and process. Phase, step and collective number always belong together. If the
  // writer is, or died, between two stores, the operation is left out and the times may be those
  // of the moment before. Empty if no process has written.
  std::optional<PhaseNow> read() const;

 private:
  struct Words;
  explicit PhasePage(net::SharedMemory memory);
  Words& words() const;
  void turn();  // Adds the time until now to the phase or wait that ends.
  void publish();
  void tell_times();

  net::SharedMemory memory_;
  // The writer's own state.
  PhaseAt at_;
  int64_t begun_ = 0;  // Collectives in this step. A rank may wait for an older one.
  std::chrono::steady_clock::time_point since_;
  PhaseTimes times_;
  int64_t steps_begun_ = 0;
  double work_told_ = 0;
};

}  // namespace trireme::watch
