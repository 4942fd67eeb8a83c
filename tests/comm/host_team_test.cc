#include <gtest/gtest.h>

#include <trireme/comm/host/host_team.h>
#include <trireme/comm/threads/reduce_kernel.h>
#include <cmath>
#include <numeric>
#include <thread>

namespace trireme::comm::host_team_test {
namespace {

constexpr Milliseconds kTimeout{20000};

// Runs `body(team)` for each rank of a team of threads.
template <typename Body>
void on_each(int count, Body body) {
  std::vector<std::thread> threads;
  for (const auto& team : make_thread_teams(count, kTimeout))
    threads.emplace_back([&body, team] { body(*team); });
  for (auto& thread : threads) thread.join();
}

// Values written before the barrier can be read after it. ThreadSanitizer checks the plain
// integers here.
TEST(HostTeam, WritesBeforeABarrierAreSeenAfterIt) {
  constexpr int kRanks = 4;
  std::vector<int> values(kRanks, -1);
  on_each(kRanks, [&](HostTeam& team) {
    const int rank = team.rank();
    for (int round = 0; round < 500; ++round) {
      values[static_cast<size_t>(rank)] = round * kRanks + rank;
      team.barrier("test");
      for (int other = 0; other < kRanks; ++other)
        ASSERT_EQ(values[static_cast<size_t>(other)], round * kRanks + other);
      team.barrier("test");
    }
  });
}

TEST(HostTeam, RanksSumEachOthersBuffersInParts) {
  constexpr int kRanks = 3;
  constexpr int64_t kElements = 3000;
  std::vector<const float*> shown(kRanks);
  on_each(kRanks, [&](HostTeam& team) {
    const int rank = team.rank();
    for (int round = 0; round < 100; ++round) {
      std::vector<float> mine(kElements, static_cast<float>(rank + round)),
          sum(kElements / kRanks);
      shown[static_cast<size_t>(rank)] = mine.data();
      team.meet({"sum", kElements, "Float"});
      std::vector<const void*> sources;
      for (int other = 0; other < kRanks; ++other)
        sources.push_back(shown[static_cast<size_t>(other)] + rank * (kElements / kRanks));
      fold_range(plan::DType::float32, Fold::sum, sum.data(), sources, 0, kElements / kRanks);
      team.barrier("sum");
      for (const float value : sum) ASSERT_EQ(value, static_cast<float>(3 * round + 3));
    }
  });
}

TEST(HostTeam, ATeamOfOneRankDoesNotWait) {
  const auto team = make_thread_teams(1, kTimeout).front();
  team->meet({"alone", 0, ""});
  team->barrier("alone");
}

TEST(ReduceKernel, FoldsOnlyTheRangeAndMayWriteIntoASource) {
  std::vector<int32_t> a(5000), b(5000, 2);
  std::iota(a.begin(), a.end(), 0);
  const std::vector<const void*> sources{a.data(), b.data()};
  fold_range(plan::DType::int32, Fold::sum, a.data(), sources, 100, 4900);
  for (int i = 0; i < 5000; ++i)
    ASSERT_EQ(a[static_cast<size_t>(i)], i >= 100 && i < 4900 ? i + 2 : i);
}

TEST(ReduceKernel, NaNWinsMaxAndMinAtAnyPlace) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Fold fold : {Fold::max, Fold::min}) {
    const std::vector<float> first{nan, 1, 3}, second{1, nan, 2};
    std::vector<float> out(3);
    const std::vector<const void*> sources{first.data(), second.data()};
    fold_range(plan::DType::float32, fold, out.data(), sources, 0, 3);
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
    EXPECT_EQ(out[2], fold == Fold::max ? 3 : 2);
  }
}

}  // namespace
}  // namespace trireme::comm::host_team_test
