// A barrier in shared memory for the threads and processes of one host. It has a deadline, and all
// ranks see when it has ended.
//
// std::barrier and std::atomic::wait are private to a process and have no time-out, so this
// barrier uses the futex system call. It spins briefly, and then blocks.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/net/shared_memory.h>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace trireme::net {

constexpr int kMaxRanksOfHost = 64;

// Plain memory that is zero at the start. Its address in a SharedMemory is a multiple of 64.
struct SharedBarrier {
  struct Arrival {
    alignas(64) std::atomic<uint64_t> count;
  };
  // The futex word: phase << 9 | ended << 8 | ranks that have arrived. It is one word, so that
  // either all ranks pass a phase, or it ends for all of them.
  alignas(64) std::atomic<uint32_t> state;
  // The ranks that block. A rank that dies there stays counted, which costs a system call a phase.
  alignas(64) std::atomic<uint32_t> sleepers;
  alignas(64) std::atomic<uint32_t> ending;  // 1: a rank is writing the reason.
  int32_t code;                              // The code of the error that ended the barrier.
  std::array<char, 512> reason;
  std::array<char, 256> remedy;
  // For each rank, the number of barriers that it has reached.
  std::array<Arrival, kMaxRanksOfHost> arrivals;
};

// One rank's view. A process can have any number of views; one thread at a time uses a view.
class BarrierView {
 public:
  struct Options {
    Milliseconds timeout{60000};
    // A wait calls it about every 10 ms. It throws Error(peer_lost) if a worker was lost. It may
    // be empty.
    std::function<void()> throw_if_lost;
    // Processes spin while every rank can have a core of its own. Threads always spin, and soon
    // yield the core.
    Sharing sharing = Sharing::processes;
  };
  BarrierView(SharedBarrier& barrier, int rank, int size, Options options);

  // Waits until all ranks have arrived. Throws Error(timeout) naming the missing ranks, the error
  // of throw_if_lost, or the error that ended the barrier. After any of these the barrier has
  // ended for all ranks with the first error: no rank passes this meeting or a later one.
  void arrive_and_wait(const char* operation);
  // Ends the barrier for all ranks: their waits throw Error(code) with `reason`. The first reason
  // stays. Any thread may call it.
  void end(ErrorCode code, const std::string& reason, const std::string& remedy = {});
  void throw_if_ended() const;

 private:
  bool is_over(uint32_t phase) const;
  bool spin(uint32_t phase) const;
  void wait(uint32_t phase, const char* operation);
  bool end_unless_passed(uint32_t phase, ErrorCode code, const std::string& reason,
                         const std::string& remedy);
  [[noreturn]] void throw_ending() const;
  std::string missing() const;

  SharedBarrier& barrier_;
  const int rank_, size_;
  const Options options_;
  const bool enough_cores_;
};

}  // namespace trireme::net
