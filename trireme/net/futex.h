// Waiting for a word in shared memory to change. Unlike std::atomic::wait it works between
// processes and returns in time.
#pragma once
#include <atomic>
#include <cstdint>

namespace trireme::net {

// Returns when somebody woke the word, when it is not `expected`, or after 10 ms: callers look
// again, and at their deadline.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected);
void futex_wake_all(std::atomic<uint32_t>& word);
// For loops that spin: leaves the core's resources to its other thread.
void pause_core();

}  // namespace trireme::net
