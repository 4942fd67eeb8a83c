#include <linux/futex.h>
#include <sys/syscall.h>
#include <trireme/net/futex.h>
#include <unistd.h>
#include <climits>
#include <ctime>
#include <thread>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trireme::net {

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  static constexpr timespec kSlice{0, 10'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &kSlice, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void pause_core() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace trireme::net
