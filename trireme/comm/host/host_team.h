// The ranks of one host that share memory: threads of a process, processes of the host, or both.
// The team gives them a barrier, a place to compare their next operations, and memory that all of
// them see. It ends for all of them at once. Every group inside a host stands on one.
//
// Each rank has one object, used by one thread at a time. Every wait ends in Error(timeout),
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

// The next operation of a rank. The team compares intents before a byte is read.
struct Intent {
  const char* operation = "";
  int64_t elements = 0;
  std::string form;  // Element type, and the reduction or root: "Float, sum".
};

class HostTeam {
 public:
  struct Process;  // The state common to the threads of one process.
  HostTeam(std::shared_ptr<Process> process, int rank, int size);
  ~HostTeam();

  int rank() const { return rank_; }
  int size() const { return size_; }
  // The group of the team calls it: not all ranks of the world are in it.
  void join(bool some) { among_some_ranks_ = some; }
  bool among_some_ranks() const { return among_some_ranks_; }

  // COLLECTIVE. Waits until all ranks have arrived. All ranks then see everything that each wrote
  // to shared memory before.
  void barrier(const char* operation);
  // COLLECTIVE. A barrier that also compares the intents of all ranks. If they differ, it throws
  // Error(invalid_argument) on each rank, naming two of them.
  void meet(const Intent& intent);
  // COLLECTIVE. Returns zeroed memory for all ranks. Its first `reserved` bytes are reserved and
  // mapped in the page tables; the rest is only addresses until reserve() is called. Throws
  // Error(io) on all ranks if there is too little memory. With `folder` the memory is a file
  // there, which is not mapped in the page tables yet.
  std::shared_ptr<net::SharedMemory> allocate(size_t bytes, size_t reserved, const char* purpose,
                                              const std::string& folder = {});
  // For waits of the caller's own: throws the error that ended the team, or Error(peer_lost) when
  // a worker is known to be lost.
  void throw_if_ended() const;
  // Makes this rank give up: the others' waits end in Error(aborted). Any thread.
  void abort(const std::string& reason);

 private:
  struct Control;
  class Mark;
  Control& control() const;

  std::shared_ptr<Process> process_;
  const int rank_, size_;
  bool among_some_ranks_ = false;
  net::BarrierView barrier_;
  uint64_t meetings_ = 0;
};

// For the threads of one process: one team object per thread.
std::vector<std::shared_ptr<HostTeam>> make_thread_teams(int size, Milliseconds timeout);

// The means by which one process finds the others of its host and learns of lost workers. World
// provides them.
struct HostMeeting {
  int process = 0, processes = 1;  // The number of this process among those of the host.
  // The ranks of this process in the team, in ascending order, and the number of all ranks. If
  // empty, each process has the same number of ranks, one after another.
  std::vector<int> ranks = {};
  int size = 0;
  Milliseconds timeout{60000};
  // Process 0 calls it to tell the others where it listens.
  std::function<void(const std::string& value)> publish;
  // The others call it to wait for that value.
  std::function<std::string(Deadline)> look_up;
  // Throws Error(peer_lost) when a worker of the job is lost.
  std::function<void()> throw_if_lost;
};
// COLLECTIVE over the processes of a host, each with `replicas` threads. Returns a team for each
// rank of this process. Throws Error(unsupported) for more ranks than net::kMaxRanksOfHost,
// or Error(io | timeout | peer_lost).
std::vector<std::shared_ptr<HostTeam>> join_host_teams(const HostMeeting& meeting, int replicas);

}  // namespace trireme::comm
