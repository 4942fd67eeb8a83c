#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/plan/placement.h>

#include "../base/expect_error.h"

namespace trireme::plan::placement_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Ranks 0, 1 and 3 share the memory of host 0, and rank 2 is alone on host 1.
Placement three_and_one() {
  Placement placement;
  placement.hosts = {0, 0, 1, 0};
  placement.inside = {Carrier{"shm", {0, 1, 3}, {}}, Carrier{"threads", {2}, {}}};
  placement.between = Carrier{"gloo", {0, 2}, {0, 1}};
  return placement;
}

template <typename Change>
std::string fault_after(Change change) {
  Placement placement = three_and_one();
  change(placement);
  return message_of(ErrorCode::internal, [&] { check(placement); });
}

TEST(Placement, OfOneHostHasNoCarrierBetweenHosts) {
  const Placement placement = on_one_host(3, "shm");
  EXPECT_NO_THROW(check(placement));
  EXPECT_EQ(placement.ranks(), 3);
  EXPECT_EQ(placement.host_count(), 1);
  EXPECT_THAT(placement.hosts, ElementsAre(0, 0, 0));
  EXPECT_THAT(placement.inside[0].ranks, ElementsAre(0, 1, 2));
  EXPECT_FALSE(placement.between);
}

TEST(Placement, OfRanksThatAreAloneJoinsAllOfThem) {
  const Placement placement = each_alone(3, "tcp");
  EXPECT_NO_THROW(check(placement));
  EXPECT_EQ(placement.host_count(), 3);
  EXPECT_THAT(placement.hosts, ElementsAre(0, 1, 2));
  ASSERT_TRUE(placement.between);
  EXPECT_EQ(placement.between->path, "tcp");
  EXPECT_THAT(placement.between->ranks, ElementsAre(0, 1, 2));
}

TEST(Placement, OfOneRankHasNothingToCarry) {
  const Placement placement = each_alone(1, "gloo");
  EXPECT_NO_THROW(check(placement));
  EXPECT_EQ(placement.host_count(), 1);
  EXPECT_FALSE(placement.between);
  EXPECT_FALSE(placement.runs_in_background());
}

TEST(Placement, KeepsTheTableOfItsRanks) {
  CollectiveTable table;
  table.always(Collective::all_reduce, Algorithm::ring);
  EXPECT_EQ(on_one_host(2, "threads", table).table, table);
  EXPECT_EQ(each_alone(2, "tcp", table).table, table);
}

TEST(Placement, KnowsWhichCarriersRunPlans) {
  for (const char* path : {"threads", "shm", "tcp"})
    EXPECT_TRUE(Carrier{.path = path}.runs_plans()) << path;
  for (const char* path : {"gloo", "mpi", "nccl"})
    EXPECT_FALSE(Carrier{.path = path}.runs_plans()) << path;
}

TEST(Placement, RunsInTheBackgroundIfNoRankSharesMemory) {
  EXPECT_TRUE(each_alone(2, "gloo").runs_in_background());
  EXPECT_TRUE(each_alone(2, "tcp").runs_in_background());
  EXPECT_FALSE(on_one_host(2, "threads").runs_in_background());
  EXPECT_FALSE(on_one_host(2, "shm").runs_in_background());
  EXPECT_FALSE(three_and_one().runs_in_background());
}

TEST(Placement, DescribesItselfInALine) {
  EXPECT_EQ(on_one_host(1, "threads").describe(), "1 rank on 1 host: no messages");
  EXPECT_EQ(on_one_host(4, "shm").describe(), "4 ranks on 1 host: shm");
  EXPECT_EQ(each_alone(3, "tcp").describe(), "3 ranks on 3 hosts: tcp between");
  EXPECT_EQ(three_and_one().describe(), "4 ranks on 2 hosts: shm inside, gloo between");
}

TEST(Placement, GivesHostsAndCarriersAsJson) {
  EXPECT_EQ(on_one_host(2, "threads").to_json().dump(),
            R"({"hosts":[0,0],"inside":[{"path":"threads","ranks":[0,1],"hosts":[]}],)"
            R"("between":null})");
  EXPECT_EQ(three_and_one().to_json().dump(),
            R"({"hosts":[0,0,1,0],"inside":[{"path":"shm","ranks":[0,1,3],"hosts":[]},)"
            R"({"path":"threads","ranks":[2],"hosts":[]}],)"
            R"("between":{"path":"gloo","ranks":[0,2],"hosts":[0,1]}})");
}

TEST(PlacementCheck, AcceptsHostsOfDifferentSizes) { EXPECT_NO_THROW(check(three_and_one())); }

TEST(PlacementCheck, NamesARankThatIsInNoCarrier) {
  EXPECT_THAT(fault_after([](Placement& placement) { placement.inside[0].ranks = {0, 3}; }),
              HasSubstr("rank 1 is in the carriers of 0 hosts"));
}

TEST(PlacementCheck, NamesARankThatIsOnTwoHosts) {
  EXPECT_THAT(fault_after([](Placement& placement) { placement.inside[1].ranks = {1, 2}; }),
              HasSubstr("rank 1 is on host 0 and in the carrier of host 1"));
  EXPECT_THAT(fault_after([](Placement& placement) { placement.inside[0].ranks = {0, 1, 1, 3}; }),
              HasSubstr("rank 1 is in the carriers of 2 hosts"));
}

TEST(PlacementCheck, NamesARankOnAHostThatDoesNotExist) {
  EXPECT_THAT(fault_after([](Placement& placement) { placement.hosts[3] = 2; }),
              HasSubstr("rank 3 is on host 2 and in the carrier of host 0"));
}

TEST(PlacementCheck, NamesARankThatDoesNotExist) {
  EXPECT_THAT(fault_after([](Placement& placement) { placement.inside[0].ranks.push_back(4); }),
              HasSubstr("host 0 names rank 4 of 4"));
}

TEST(PlacementCheck, NamesAHostWithoutRanks) {
  EXPECT_THAT(fault_after([](Placement& placement) { placement.inside.emplace_back(); }),
              HasSubstr("host 2 has no rank"));
}

TEST(PlacementCheck, NamesAHostWhoseRanksAreNotInOrder) {
  EXPECT_THAT(fault_after([](Placement& placement) { placement.inside[0].ranks = {1, 0, 3}; }),
              HasSubstr("the ranks of host 0 are not in ascending order"));
}

TEST(PlacementCheck, NeedsACarrierBetweenSeveralHostsOnly) {
  EXPECT_THAT(fault_after([](Placement& placement) { placement.between.reset(); }),
              HasSubstr("2 hosts, and no carrier between them"));
  Placement one_host = on_one_host(2, "threads");
  one_host.between = Carrier{"tcp", {0, 1}, {}};
  EXPECT_THAT(message_of(ErrorCode::internal, [&] { check(one_host); }),
              HasSubstr("1 hosts, and a carrier between them"));
}

TEST(PlacementCheck, NamesALeaderThatTheCarrierBetweenHostsLeavesOut) {
  EXPECT_THAT(fault_after([](Placement& placement) { placement.between->ranks = {0}; }),
              HasSubstr("rank 2 is the first of host 1 and cannot reach the other hosts"));
}

}  // namespace
}  // namespace trireme::plan::placement_test
