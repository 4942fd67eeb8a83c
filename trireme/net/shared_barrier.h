// A barrier in shared memory for the threads and processes of one host, with a deadline and an
// ending that all see.
//
// std::barrier and std::atomic::wait are private to a process and have no time-out, so it stands on
// the futex system call. It spins briefly while every rank can have a core of its own, then blocks.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace trireme::net {

constexpr int kMaxRanksOfHost = 64;

// Plain memory, all zero at the start: placed at an address of a SharedMemory that is a multiple
// of 64.
struct SharedBarrier {
  struct Arrival {
    alignas(64) std::atomic<uint64_t> count;
  };
  // The futex word: phase << 9 | ended << 8 | ranks that have arrived. One word, so that each phase
  // is passed by all or ended for all.
  alignas(64) std::atomic<uint32_t> state;
  alignas(64) std::atomic<uint32_t> ending;  // 1: somebody writes the reason.
  int32_t code;                              // Of the error that ended it.
  std::array<char, 512> reason;
  std::array<char, 256> remedy;
  std::array<Arrival, kMaxRanksOfHost> arrivals;  // Per rank, how many barriers it has reached.
};

// One rank's view. Any number of views per process; each is used by one thread at a time.
class BarrierView {
 public:
  struct Options {
    Milliseconds timeout{60000};
    // Called about every 10 ms of a wait; throws (peer_lost) when it knows of a loss. May be empty.
    std::function<void()> throw_if_lost;
  };
  BarrierView(SharedBarrier& barrier, int rank, int size, Options options);

  // All ranks have arrived. Throws Error(timeout) naming the ranks that are missing, what
  // throw_if_lost throws, or the error that ended the barrier. After any of them it has ended for
  // all ranks, with the first error: none of them passes this meeting, or any later one.
  void arrive_and_wait(const char* operation);
  // Ends it for all: their waits throw Error(code) with `reason`. The first reason stays. Any
  // thread.
  void end(ErrorCode code, const std::string& reason, const std::string& remedy = {});
  void throw_if_ended() const;

 private:
  bool is_over(uint32_t phase) const;
  void wait(uint32_t phase, const char* operation);
  bool end_unless_passed(uint32_t phase, ErrorCode code, const std::string& reason,
                         const std::string& remedy);
  [[noreturn]] void throw_ending() const;
  std::string missing() const;

  SharedBarrier& barrier_;
  const int rank_, size_;
  const Options options_;
  const bool spin_;
};

}  // namespace trireme::net
