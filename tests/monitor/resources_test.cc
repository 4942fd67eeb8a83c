#include <gtest/gtest.h>
#include <sys/wait.h>
#include <trireme/monitor/resources.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <vector>

namespace trireme::monitor {
namespace {

using Clock = std::chrono::steady_clock;

void burn_cpu_seconds(double seconds) {
  timespec now{};
  do ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  while (static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 < seconds);
}

TEST(Resources, CpuSecondsCountTheProcessAndItsEndedChildren) {
  const double before = process_cpu_seconds();
  const pid_t child = ::fork();
  if (child == 0) {
    burn_cpu_seconds(0.2);  // A new process starts its CPU clock at 0.
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_GE(process_cpu_seconds() - before, 0.15);
}

TEST(Resources, PssCountsMemoryThatWasTouched) {
  const int64_t before = process_pss_bytes();
  if (!std::filesystem::exists("/proc/self/smaps_rollup")) {
    EXPECT_EQ(before, 0);
    return;
  }
  constexpr size_t kBytes = 32 << 20;
  std::vector<char> memory(kBytes, 1);
  EXPECT_GE(process_pss_bytes() - before, static_cast<int64_t>(kBytes) * 9 / 10);
  EXPECT_EQ(memory.back(), 1);
}

TEST(Resources, CostAddsCpuTimeAndReservedDevices) {
  EXPECT_DOUBLE_EQ(cost_of({.per_cpu_hour = 0.04}, 7200, 3600, 0), 0.08);
  EXPECT_DOUBLE_EQ(cost_of({.per_device_hour = 2}, 7200, 1800, 4), 4);
  EXPECT_DOUBLE_EQ(cost_of({.per_cpu_hour = 0.5, .per_device_hour = 2}, 3600, 3600, 1), 2.5);
  EXPECT_DOUBLE_EQ(cost_of({}, 3600, 3600, 8), 0);
}

TEST(PssSampler, RemembersThePeakAfterMemoryIsGivenBack) {
  PssSampler sampler;
  constexpr int64_t kBytes = 32 << 20;
  int64_t with_memory = 0;
  {
    std::vector<char> memory(kBytes, 1);
    with_memory = sampler.peak();
    EXPECT_EQ(memory.back(), 1);
  }
  EXPECT_GE(sampler.peak(), with_memory);
  EXPECT_GE(with_memory, process_pss_bytes());
}

TEST(PssSampler, LeavesSignalsToOtherThreads) {
  PssSampler sampler;
  sigset_t usr1, before, pending;
  ::sigemptyset(&usr1);
  ::sigaddset(&usr1, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &usr1, &before);
  const auto old_handler = ::signal(SIGUSR1, [](int) {});
  ::kill(::getpid(), SIGUSR1);
  ::sigpending(&pending);
  EXPECT_EQ(::sigismember(&pending, SIGUSR1), 1);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::signal(SIGUSR1, old_handler);
}

TEST(PssSampler, EndsWithoutWaitingForItsNextSample) {
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) PssSampler sampler;
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));  // Twenty intervals would be 20 s.
}

}  // namespace
}  // namespace trireme::monitor
