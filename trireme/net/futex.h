// Waits until a word in shared memory changes. Unlike std::atomic::wait, this works between
// processes and returns after a bounded time.
#pragma once
#include <atomic>
#include <cstdint>

namespace trireme::net {

// Returns when another thread woke the word, when the word is not `expected`, or after 10 ms. The
// caller checks the word and its deadline again.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected);
void futex_wake_all(std::atomic<uint32_t>& word);
// For loops that spin: leaves the core's resources to its other hardware thread.
void pause_core();

}  // namespace trireme::net
