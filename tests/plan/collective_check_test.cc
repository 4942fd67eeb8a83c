// The checker accepts every plan that the planner makes. It rejects a plan in which one thing is
// broken by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/plan/collective_plan.h>
#include <algorithm>
#include <functional>

#include "../base/expect_error.h"
#include "reference_executor.h"

namespace trireme::plan::collective_check_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string rejection(const CollectivePlan& plan) {
  return message_of(ErrorCode::internal, [&] { check(plan); });
}

void remove_send(RankRound& sender, int chunk, int receiver) {
  std::erase(sender.sends, std::pair(chunk, receiver));
}

// Calls visit(copy of the plan, round, receiving rank, index of the transfer) for every transfer
// of every plan up to 8 ranks.
using Visit = std::function<void(CollectivePlan, size_t round, size_t rank, size_t transfer)>;
void for_each_transfer(const Visit& visit) {
  for_each_plan(8, [&](const CollectivePlan& plan) {
    SCOPED_TRACE(std::string(to_string(plan.collective)) + " " +
                 std::string(to_string(plan.algorithm)) + " of " +
                 std::to_string(plan.world_size));
    for (size_t round = 0; round < plan.rounds.size(); ++round) {
      for (size_t rank = 0; rank < plan.rounds[round].size(); ++rank) {
        for (size_t i = 0; i < plan.rounds[round][rank].receives.size(); ++i)
          visit(plan, round, rank, i);
      }
    }
  });
}
CollectivePlan ring_of_four() {
  return plan_collective(Collective::all_reduce, Algorithm::ring, 4);
}

TEST(CollectiveCheck, AcceptsEveryPlanForOneToSixteenRanks) {
  for_each_plan(
      16, [](const CollectivePlan& plan) { EXPECT_NO_THROW(check(plan)) << plan.describe(); });
}

TEST(CollectiveCheck, RejectsAReceiveThatWasDropped) {
  for_each_transfer([](CollectivePlan plan, size_t round, size_t rank, size_t i) {
    auto& receives = plan.rounds[round][rank].receives;
    receives.erase(receives.begin() + static_cast<int64_t>(i));
    EXPECT_THAT(rejection(plan), HasSubstr("which does not receive it"));
  });
}

TEST(CollectiveCheck, RejectsATransferThatWasDroppedOnBothSides) {
  for_each_transfer([](CollectivePlan plan, size_t round, size_t rank, size_t i) {
    auto& receives = plan.rounds[round][rank].receives;
    const Transfer dropped = receives[i];
    receives.erase(receives.begin() + static_cast<int64_t>(i));
    for (const int source : dropped.sources)
      remove_send(plan.rounds[round][static_cast<size_t>(source)], dropped.chunk,
                  static_cast<int>(rank));
    EXPECT_THAT(rejection(plan),
                testing::AnyOf(HasSubstr("lacks the contribution"), HasSubstr("never arrived"),
                               HasSubstr("has nothing of it yet"), HasSubstr("by another tree"),
                               HasSubstr("once more")));
  });
}

TEST(CollectiveCheck, RejectsASendThatWasDropped) {
  for_each_transfer([](CollectivePlan plan, size_t round, size_t rank, size_t i) {
    const Transfer transfer = plan.rounds[round][rank].receives[i];
    const int sender = *std::find_if(transfer.sources.begin(), transfer.sources.end(),
                                     [&](int s) { return s != static_cast<int>(rank); });
    remove_send(plan.rounds[round][static_cast<size_t>(sender)], transfer.chunk,
                static_cast<int>(rank));
    EXPECT_THAT(rejection(plan), HasSubstr("which does not send it"));
  });
}

TEST(CollectiveCheck, RejectsASendWithoutAReceive) {
  for_each_transfer([](CollectivePlan plan, size_t round, size_t rank, size_t i) {
    const Transfer transfer = plan.rounds[round][rank].receives[i];
    auto& sends = plan.rounds[round][rank].sends;
    const int other = static_cast<int>(rank) == 0 ? 1 : 0;
    sends.emplace_back(transfer.chunk, other);
    EXPECT_THAT(rejection(plan), HasSubstr("which does not receive it"));
  });
}

TEST(CollectiveCheck, RejectsAContributionThatIsAddedTwice) {
  for_each_transfer([](CollectivePlan plan, size_t round, size_t rank, size_t i) {
    Transfer& transfer = plan.rounds[round][rank].receives[i];
    const int source = transfer.sources.front();
    transfer.sources.push_back(source);
    if (source != static_cast<int>(rank))
      plan.rounds[round][static_cast<size_t>(source)].sends.emplace_back(transfer.chunk,
                                                                         static_cast<int>(rank));
    EXPECT_THAT(rejection(plan),
                AllOf(HasSubstr("once more"), HasSubstr("round " + std::to_string(round) +
                                                        ", rank " + std::to_string(rank))));
  });
}

TEST(CollectiveCheck, RejectsAContributionThatIsLeftOut) {
  for_each_transfer([](CollectivePlan plan, size_t round, size_t rank, size_t i) {
    Transfer& transfer = plan.rounds[round][rank].receives[i];
    if (transfer.sources.size() < 2) return;
    const int source = transfer.sources.back();
    transfer.sources.pop_back();
    remove_send(plan.rounds[round][static_cast<size_t>(source)], transfer.chunk,
                static_cast<int>(rank));
    EXPECT_THAT(rejection(plan), HasSubstr("lacks the contribution of rank"));
  });
}

TEST(CollectiveCheck, RejectsTheWrongChunk) {
  for_each_transfer([](CollectivePlan plan, size_t round, size_t rank, size_t i) {
    if (plan.chunks < 2) return;
    Transfer& transfer = plan.rounds[round][rank].receives[i];
    const int wrong = (transfer.chunk + 1) % plan.chunks;
    for (const int source : transfer.sources) {
      for (auto& [chunk, receiver] : plan.rounds[round][static_cast<size_t>(source)].sends) {
        if (chunk == transfer.chunk && receiver == static_cast<int>(rank)) chunk = wrong;
      }
    }
    transfer.chunk = wrong;
    EXPECT_NE(rejection(plan), "");
  });
}

TEST(CollectiveCheck, RejectsRoundsInTheWrongOrder) {
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter,
                                      Collective::all_gather, Collective::broadcast}) {
    for (int n = 3; n <= 8; ++n) {
      const CollectivePlan right = plan_collective(collective, Algorithm::ring, n);
      for (size_t round = 0; round + 1 < right.rounds.size(); ++round) {
        CollectivePlan plan = right;
        std::swap(plan.rounds[round], plan.rounds[round + 1]);
        EXPECT_NE(rejection(plan), "")
            << to_string(collective) << " n=" << n << " round " << round;
      }
    }
  }
}

TEST(CollectiveCheck, RejectsASumByAnotherTreeOnOneRank) {
  for (int n = 3; n <= 8; ++n) {
    CollectivePlan plan = plan_collective(Collective::all_reduce, Algorithm::naive, n);
    auto& sources = plan.rounds[0][static_cast<size_t>(n - 1)].receives[0].sources;
    std::reverse(sources.begin(), sources.end());
    EXPECT_THAT(rejection(plan), AllOf(HasSubstr("by another tree than on rank 0"),
                                       HasSubstr("rank " + std::to_string(n - 1))));
  }
}

TEST(CollectiveCheck, AcceptsSummandsThatChangePlaces) {
  CollectivePlan plan = plan_collective(Collective::all_reduce, Algorithm::naive, 3);
  plan.rounds[0][2].receives[0].sources = {1, 0, 2};
  EXPECT_NO_THROW(check(plan));
  plan.rounds[0][2].receives[0].sources = {0, 2, 1};
  EXPECT_THAT(rejection(plan), HasSubstr("by another tree"));
}

// In float16 a sum is rounded where a rank writes it: (0 + 1) + 2 has other bits in two rounds
// than in one.
TEST(CollectiveCheck, RejectsASumThatIsRoundedOnceMoreOnOneRank) {
  CollectivePlan plan{.collective = Collective::all_reduce,
                      .algorithm = Algorithm::naive,
                      .world_size = 3,
                      .chunks = 1};
  plan.rounds.assign(2, std::vector<RankRound>(3));
  plan.rounds[0][0] = {{{0, {0, 1}}}, {{0, 1}}};
  plan.rounds[0][1] = {{{0, {0, 1, 2}}}, {{0, 0}}};
  plan.rounds[0][2] = {{}, {{0, 1}}};
  plan.rounds[1][0] = {{{0, {0, 2}}}, {}};
  plan.rounds[1][1] = {{}, {{0, 2}}};
  plan.rounds[1][2] = {{{0, {1}}}, {{0, 0}}};
  EXPECT_THAT(rejection(plan), AllOf(HasSubstr("by another tree"), HasSubstr("rank 1")));
}

TEST(CollectiveCheck, RejectsALastRoundThatIsMissing) {
  for_each_plan(8, [](CollectivePlan plan) {
    if (plan.rounds.empty()) return;
    plan.rounds.pop_back();
    EXPECT_NE(rejection(plan), "");
  });
}

TEST(CollectiveCheck, RejectsAChunkWrittenTwiceInARound) {
  CollectivePlan plan = ring_of_four();
  auto& receives = plan.rounds[2][1].receives;
  receives.push_back(receives[0]);
  EXPECT_THAT(rejection(plan), HasSubstr("round 2, rank 1, chunk " +
                                         std::to_string(receives[0].chunk) + ": written twice"));
}

TEST(CollectiveCheck, RejectsAReadOfAChunkThatHasNotArrivedYet) {
  CollectivePlan plan = plan_collective(Collective::broadcast, Algorithm::ring, 4);
  std::rotate(plan.rounds.begin(), plan.rounds.begin() + 1, plan.rounds.end());
  EXPECT_THAT(rejection(plan), HasSubstr("which has nothing of it yet"));
}

TEST(CollectiveCheck, RejectsRanksAndChunksThatDoNotExist) {
  const auto broken = [](const std::function<void(CollectivePlan&)>& breaks) {
    CollectivePlan plan = ring_of_four();
    breaks(plan);
    return rejection(plan);
  };
  EXPECT_THAT(broken([](auto& plan) { plan.rounds[0][0].receives[0].chunk = 4; }),
              HasSubstr("there are 4 chunks"));
  EXPECT_THAT(broken([](auto& plan) { plan.rounds[0][0].receives[0].chunk = -1; }),
              HasSubstr("there are 4 chunks"));
  EXPECT_THAT(broken([](auto& plan) { plan.rounds[0][0].receives[0].sources = {4}; }),
              HasSubstr("names rank 4 of 4"));
  EXPECT_THAT(broken([](auto& plan) { plan.rounds[0][0].receives[0].sources.clear(); }),
              HasSubstr("received from no rank"));
  EXPECT_THAT(broken([](auto& plan) { plan.rounds[0][0].sends[0].second = -2; }),
              HasSubstr("names rank -2 of 4"));
  EXPECT_THAT(broken([](auto& plan) { plan.rounds[0][0].sends[0].second = 0; }),
              HasSubstr("sent to itself"));
  EXPECT_THAT(broken([](auto& plan) { plan.rounds[3].pop_back(); }),
              HasSubstr("round 3: has actions for 3 of 4 ranks"));
  EXPECT_THAT(broken([](auto& plan) { plan.root = 7; }), HasSubstr("root: names rank 7 of 4"));
  EXPECT_THAT(broken([](auto& plan) { plan.hosts = {0, 1}; }),
              HasSubstr("hosts for 2 of 4 ranks"));
  EXPECT_THAT(broken([](auto& plan) { plan.world_size = 0; }), HasSubstr("0 ranks"));
  EXPECT_THAT(
      broken([](auto& plan) { plan.collective = Collective::all_gather, plan.chunks = 2; }),
      HasSubstr("needs one for each of 4 ranks"));
}

}  // namespace
}  // namespace trireme::plan::collective_check_test
