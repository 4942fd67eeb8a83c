#include <gtest/gtest.h>
#include <sys/wait.h>
#include <trireme/monitor/resources.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace trireme::monitor::resources_test {
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
  const int64_t before = sampler.peak();
  int64_t with_memory = 0;
  {
    std::vector<char> memory(kBytes, 1);
    with_memory = sampler.peak();
    EXPECT_EQ(memory.back(), 1);
  }
  EXPECT_GE(with_memory, before);
  EXPECT_GE(sampler.peak(), with_memory);
}

struct ThreadStatus {
  bool sleeping = false;
  uint64_t blocked_signals = 0;
};
std::map<std::string, ThreadStatus> threads_of_this_process() {
  std::map<std::string, ThreadStatus> threads;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    ThreadStatus& status = threads[thread.path().filename().string()];
    std::ifstream in(thread.path() / "status");
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("State:"))
        status.sleeping = line.find("S (sleeping)") != std::string::npos;
      if (line.starts_with("SigBlk:"))
        status.blocked_signals = std::stoull(line.substr(7), nullptr, 16);
    }
  }
  return threads;
}

TEST(PssSampler, LeavesSignalsToOtherThreads) {
  const auto before = threads_of_this_process();
  PssSampler sampler;
  // A thread starts with all signals blocked and then takes on its parent's mask. It has done so
  // before its first sleep.
  ThreadStatus sampling;
  for (const auto deadline = Clock::now() + std::chrono::seconds(5);
       !sampling.sleeping && Clock::now() < deadline;) {
    for (const auto& [id, status] : threads_of_this_process())
      if (!before.contains(id)) sampling = status;
  }
  ASSERT_TRUE(sampling.sleeping);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD})
    EXPECT_TRUE(sampling.blocked_signals >> (signal - 1) & 1) << signal;
}

TEST(PssSampler, EndsWithoutWaitingForItsNextSample) {
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) PssSampler sampler;
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));  // Twenty intervals would take 20 s.
}

}  // namespace
}  // namespace trireme::monitor::resources_test
