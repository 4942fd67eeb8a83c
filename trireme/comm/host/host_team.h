// The ranks of one host that share memory: threads of a process, processes of the host, or both. It
// gives them a barrier, a place to compare what they are about to do, and memory that all of them
// see.
//
// One object a rank; each is used by one thread at a time. Every wait ends in Error(timeout),
// Error(peer_lost) or Error(aborted), on all ranks alike.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/net/shared_barrier.h>
#include <trireme/net/shared_memory.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme::comm {

// What a rank is about to do: compared over the team before a byte is read.
struct Intent {
  const char* operation = "";
  int64_t elements = 0;
  std::string form;  // Element type, and the reduction or root: "Float, sum".
};

class HostTeam {
 public:
  struct Process;  // What the threads of one process have in common.
  HostTeam(std::shared_ptr<Process> process, int rank, int size);
  ~HostTeam();

  int rank() const { return rank_; }
  int size() const { return size_; }

  // COLLECTIVE. All ranks have arrived; what each wrote to shared memory before is seen by all
  // after it.
  void barrier(const char* operation);
  // COLLECTIVE. The same, and all ranks mean to do the same: else Error(invalid_argument) on each,
  // naming two of them.
  void meet(const Intent& intent);
  // COLLECTIVE. Memory for all, zeroed; the first `reserved` bytes of it are reserved and entered
  // in the page tables, the rest is addresses until somebody calls reserve(). Throws Error(io) on
  // all ranks where there is too little.
  std::shared_ptr<net::SharedMemory> allocate(size_t bytes, size_t reserved, const char* purpose);
  // Throws the error that ended the team, or Error(peer_lost) once a worker is known to be lost:
  // for waits of one's own.
  void throw_if_ended() const;
  // This rank gives up: the others' waits end with Error(aborted). Any thread.
  void abort(const std::string& reason);

 private:
  struct Control;
  Control& control() const;

  std::shared_ptr<Process> process_;
  const int rank_, size_;
  net::BarrierView barrier_;
  uint64_t meetings_ = 0;
};

// Threads of one process: one team object a thread.
std::vector<std::shared_ptr<HostTeam>> make_thread_teams(int size, Milliseconds timeout);

// How one process finds the others of its host and learns of losses; what World gives.
struct HostMeeting {
  int process = 0, processes = 1;  // Among the processes of this host.
  Milliseconds timeout{60000};
  std::function<void(const std::string& value)>
      publish;                                   // Process 0: tells the others where it listens.
  std::function<std::string(Deadline)> look_up;  // The others: waits for it.
  std::function<void()> throw_if_lost;  // Throws Error(peer_lost) once a worker of the job is lost.
};
// COLLECTIVE over the processes of a host, each with `replicas` threads: team ranks are process *
// replicas + thread. Throws Error(unsupported) for more ranks than net::kMaxRanksOfHost, Error(io |
// timeout | peer_lost).
std::vector<std::shared_ptr<HostTeam>> join_host_teams(const HostMeeting& meeting, int replicas);

}  // namespace trireme::comm
