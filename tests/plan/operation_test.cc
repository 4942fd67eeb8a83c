#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/operation.h>

#include "placements.h"

namespace trireme::plan::operation_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

using Among = OperationPlanner::Among;
using Counts = std::vector<int64_t>;

// Sizes on both sides of the thresholds between algorithms; most divide by no number of ranks.
const std::vector<int64_t> kSizes = {0, 1, 7, 1000, 100003, 1 << 20};

// "all_reduce over gloo: x, between hosts"
std::vector<std::string> titles_of(const std::vector<Operation>& operations) {
  std::vector<std::string> titles;
  for (const Operation& operation : operations)
    titles.push_back(operation.name + " over " + operation.path + ": " + operation.content);
  return titles;
}

// Expects that exactly the carrier's ranks take part once, and that each sends what the plan of
// the table's algorithm says.
void expect_by_plan(const Operation& operation, const Carrier& carrier,
                    const Placement& placement) {
  const Collective collective = collective_from_string(operation.name);
  const int64_t element_bytes = bytes_of(operation.dtype);
  const SizeChoices choices =
      placement.table.choices(carrier.path, collective, carrier.size(), carrier.hosts);
  const Algorithm algorithm =
      choices[choose(choices, operation.elements * element_bytes)].algorithm;
  const CollectivePlan plan =
      plan_collective(collective, algorithm, carrier.size(), 0, carrier.hosts);
  Counts times(static_cast<size_t>(placement.ranks()), 0), bytes = times;
  for (int place = 0; place < carrier.size(); ++place) {
    const auto rank = static_cast<size_t>(carrier.ranks[static_cast<size_t>(place)]);
    times[rank] = 1;
    bytes[rank] = plan.bytes_sent(place, operation.elements, element_bytes);
  }
  EXPECT_EQ(operation.path, carrier.path);
  EXPECT_EQ(operation.algorithm, to_string(algorithm));
  EXPECT_EQ(operation.operations, times) << operation.content;
  EXPECT_EQ(operation.bytes_sent, bytes)
      << operation.name << " of " << operation.elements << " by " << operation.algorithm;
}

TEST(Steps, AreAllStepsUnlessSaidOtherwise) {
  EXPECT_EQ(Steps{}.times(0), 0);
  EXPECT_EQ(Steps{}.times(1), 1);
  EXPECT_EQ(Steps{}.times(10), 10);
}

TEST(Steps, CountTheOnesBetweenFirstAndLast) {
  const Steps once{1, 1, 1}, until_three{1, 3, 1}, from_four{4, -1, 1}, never{1, 0, 1};
  EXPECT_EQ(once.times(1), 1);
  EXPECT_EQ(once.times(100), 1);
  EXPECT_EQ(until_three.times(2), 2);
  EXPECT_EQ(until_three.times(100), 3);
  EXPECT_EQ(from_four.times(3), 0);
  EXPECT_EQ(from_four.times(10), 7);
  EXPECT_EQ(never.times(100), 0);
}

TEST(Steps, CountEachNthOne) {
  const Steps fourth{1, -1, 4}, third_after_three{4, -1, 3};
  EXPECT_EQ(fourth.times(3), 0);
  EXPECT_EQ(fourth.times(4), 1);
  EXPECT_EQ(fourth.times(11), 2);
  EXPECT_EQ(third_after_three.times(5), 0);
  EXPECT_EQ(third_after_three.times(6), 1);
  EXPECT_EQ(third_after_three.times(9), 2);
}

TEST(Steps, CountAsAWalkOverAllSteps) {
  for (int64_t first = 1; first <= 5; ++first)
    for (const int64_t last : {-1, 0, 1, 4, 7})
      for (int64_t every = 1; every <= 4; ++every) {
        const Steps steps{first, last, every};
        int64_t times = 0;
        for (int64_t step = 1; step <= 12; ++step) {
          const bool inside = step >= first && (last < 0 || step <= last);
          if (inside && (step - first + 1) % every == 0) ++times;
          EXPECT_EQ(steps.times(step), times)
              << "first " << first << " last " << last << " every " << every;
        }
      }
}

TEST(OperationPlanner, CountsTheBytesOfThePlansOfOneCarrier) {
  std::vector<Placement> placements;
  for (const int ranks : {2, 3, 5, 8})
    for (const char* path : {"threads", "shm"}) placements.push_back(on_one_host(ranks, path));
  for (const int ranks : {2, 3, 5, 8}) placements.push_back(each_alone(ranks, "tcp"));
  for (const Placement& placement : placements) {
    const Carrier& all = placement.between ? *placement.between : placement.inside[0];
    for (const int64_t elements : kSizes) {
      OperationPlanner planner(placement);
      planner.all_reduce("x", DType::float32, elements);
      planner.all_gather("x", DType::float64, elements);
      planner.broadcast("x", DType::uint8, elements);
      const std::vector<Operation> operations = planner.take();
      EXPECT_THAT(titles_of(operations), ElementsAre("all_reduce over " + all.path + ": x",
                                                     "all_gather over " + all.path + ": x",
                                                     "broadcast over " + all.path + ": x"));
      for (const Operation& operation : operations) {
        EXPECT_EQ(operation.elements, elements);
        EXPECT_THAT(operation.operations, Each(1)) << placement.describe();
        expect_by_plan(operation, all, placement);
      }
    }
  }
}

TEST(OperationPlanner, TakesTheAlgorithmsOfThePlacementsTable) {
  CollectiveTable table;
  table.set({"tcp", Collective::all_reduce, 3, 3},
            {{0, Algorithm::naive}, {4096, Algorithm::ring}});
  const Placement placement = each_alone(3, "tcp", table);
  OperationPlanner planner(placement);
  planner.all_reduce("small", DType::float32, 1023);
  planner.all_reduce("large", DType::float32, 1024);
  const std::vector<Operation> operations = planner.take();
  ASSERT_EQ(operations.size(), 2U);
  EXPECT_EQ(operations[0].algorithm, "naive");
  EXPECT_THAT(operations[0].bytes_sent, Each(2 * 1023 * 4));
  EXPECT_EQ(operations[1].algorithm, "ring");
  EXPECT_EQ(
      operations[1].bytes_sent[0] + operations[1].bytes_sent[1] + operations[1].bytes_sent[2],
      2 * 2 * 1024 * 4);
  for (const Operation& operation : operations)
    expect_by_plan(operation, *placement.between, placement);
}

TEST(OperationPlanner, CountsBackendsWithAlgorithmsOfTheirOwnAsARing) {
  for (const char* path : {"gloo", "mpi", "nccl"}) {
    const Placement placement = each_alone(3, path);
    OperationPlanner planner(placement);
    planner.all_reduce("x", DType::float32, 100);
    planner.all_gather("x", DType::float32, 300);
    planner.broadcast("x", DType::float32, 100);
    const std::vector<Operation> operations = planner.take();
    ASSERT_EQ(operations.size(), 3U);
    EXPECT_THAT(operations[0].bytes_sent, Each(2 * 2 * 400 / 3));
    EXPECT_THAT(operations[1].bytes_sent, Each(2 * 400));
    EXPECT_THAT(operations[2].bytes_sent, ElementsAre(400, 0, 0));
    for (const Operation& operation : operations) {
      EXPECT_EQ(operation.path, path);
      EXPECT_EQ(operation.algorithm, "");
      EXPECT_THAT(operation.operations, ElementsAre(1, 1, 1));
    }
  }
}

TEST(OperationPlanner, HasNothingToDoForOneRank) {
  const Placement placement = each_alone(1, "gloo");
  OperationPlanner planner(placement);
  planner.all_reduce("x", DType::float32, 100);
  planner.all_gather("x", DType::float32, 100);
  planner.broadcast("x", DType::float32, 100);
  EXPECT_THAT(planner.take(), IsEmpty());
}

// Ranks 0 and 1 share a host, and rank 2 is alone on another one.
class TwoAndOne : public testing::Test {
 protected:
  const Placement placement = on_hosts({2, 1}, "shm", "tcp");
  OperationPlanner planner{placement};

  void expect_carriers(const std::vector<Operation>& operations) const {
    for (const Operation& operation : operations)
      expect_by_plan(operation, operation.path == "tcp" ? *placement.between : placement.inside[0],
                     placement);
  }
};

TEST_F(TwoAndOne, ReducesOnHostsThenBetweenThemAndHandsTheResultOut) {
  planner.all_reduce("x", DType::float32, 1001);
  const std::vector<Operation> operations = planner.take();
  EXPECT_THAT(titles_of(operations), ElementsAre("all_reduce over shm: x, on a host",
                                                 "all_reduce over tcp: x, between hosts",
                                                 "broadcast over shm: x, on a host"));
  EXPECT_THAT(operations[0].operations, ElementsAre(1, 1, 0));
  EXPECT_THAT(operations[1].operations, ElementsAre(1, 0, 1));
  EXPECT_THAT(operations[2].operations, ElementsAre(1, 1, 0));
  for (const Operation& operation : operations) EXPECT_EQ(operation.elements, 1001);
  expect_carriers(operations);
}

TEST_F(TwoAndOne, GathersBlocksOfTheLargestHostBetweenHosts) {
  planner.all_gather("x", DType::float64, 3 * 50);
  const std::vector<Operation> operations = planner.take();
  EXPECT_THAT(titles_of(operations), ElementsAre("all_gather over shm: x, on a host",
                                                 "all_gather over tcp: x, between hosts",
                                                 "broadcast over shm: x, on a host"));
  EXPECT_EQ(operations[0].elements, 2 * 50);
  EXPECT_EQ(operations[1].elements, 2 * 2 * 50) << "both hosts send blocks for two ranks";
  EXPECT_EQ(operations[2].elements, 3 * 50);
  EXPECT_THAT(operations[1].operations, ElementsAre(1, 0, 1));
  expect_carriers(operations);
}

TEST_F(TwoAndOne, BroadcastsOnTheFirstHostThenBetweenHostsThenOnAll) {
  planner.broadcast("x", DType::int64, 9);
  const std::vector<Operation> operations = planner.take();
  EXPECT_THAT(titles_of(operations), ElementsAre("broadcast over shm: x, on the first host",
                                                 "broadcast over tcp: x, between hosts",
                                                 "broadcast over shm: x, on a host"));
  expect_carriers(operations);
}

TEST_F(TwoAndOne, LetsOnlyFirstRanksActIfThatIsWanted) {
  planner.among(Among::leaders);
  EXPECT_EQ(planner.ranks(), 2);
  EXPECT_EQ(planner.rank_at(0), 0);
  EXPECT_EQ(planner.rank_at(1), 2);
  planner.all_reduce("x", DType::float32, 100);
  planner.all_gather("x", DType::float32, 100);
  planner.broadcast("x", DType::float32, 100);
  const std::vector<Operation> operations = planner.take();
  ASSERT_EQ(operations.size(), 3U);
  for (const Operation& operation : operations) {
    EXPECT_EQ(operation.path, "tcp");
    EXPECT_EQ(operation.content, "x");
    EXPECT_THAT(operation.operations, ElementsAre(1, 0, 1));
  }
  expect_carriers(operations);
}

TEST_F(TwoAndOne, SendsMessagesByTheWayBetweenTheirRanks) {
  planner.send("x", 0, 1, DType::float32, 10);
  planner.send("x", 1, 2, DType::float32, 20);
  planner.send("x", 2, 0, DType::float32, 30);
  planner.send("x", 1, 0, DType::float32, 40);
  const std::vector<Operation> operations = planner.take();
  EXPECT_THAT(titles_of(operations), ElementsAre("send over shm: x", "send over tcp: x"));
  EXPECT_THAT(operations[0].operations, ElementsAre(1, 1, 0));
  EXPECT_THAT(operations[0].bytes_sent, ElementsAre(40, 160, 0));
  EXPECT_EQ(operations[0].elements, 50);
  EXPECT_THAT(operations[1].operations, ElementsAre(0, 1, 1));
  EXPECT_THAT(operations[1].bytes_sent, ElementsAre(0, 80, 120));
  EXPECT_EQ(operations[1].elements, 50);
}

TEST_F(TwoAndOne, SendsMessagesBetweenFirstRanksByTheirPlaces) {
  planner.among(Among::leaders);
  planner.send("x", 1, 0, DType::uint8, 10);
  const std::vector<Operation> operations = planner.take();
  EXPECT_THAT(titles_of(operations), ElementsAre("send over tcp: x"));
  EXPECT_THAT(operations[0].bytes_sent, ElementsAre(0, 0, 10));
}

TEST(OperationPlanner, NamesTheFirstHostOnlyIfItHasSeveralRanks) {
  const Placement placement = on_hosts({1, 2}, "shm", "gloo");
  OperationPlanner planner(placement);
  planner.broadcast("x", DType::float32, 5);
  const std::vector<Operation> operations = planner.take();
  EXPECT_THAT(titles_of(operations), ElementsAre("broadcast over gloo: x, between hosts",
                                                 "broadcast over shm: x, on a host"));
  EXPECT_THAT(operations[0].operations, ElementsAre(1, 1, 0));
  EXPECT_THAT(operations[1].operations, ElementsAre(0, 1, 1));
}

TEST(OperationPlanner, ActsOnEachHostThatHasSeveralRanks) {
  const Placement placement = on_hosts({2, 1, 3}, "threads", "gloo");
  OperationPlanner planner(placement);
  planner.all_reduce("x", DType::float32, 60);
  const std::vector<Operation> operations = planner.take();
  EXPECT_THAT(
      titles_of(operations),
      ElementsAre("all_reduce over threads: x, on a host", "all_reduce over threads: x, on a host",
                  "all_reduce over gloo: x, between hosts", "broadcast over threads: x, on a host",
                  "broadcast over threads: x, on a host"));
  EXPECT_THAT(operations[0].operations, ElementsAre(1, 1, 0, 0, 0, 0));
  EXPECT_THAT(operations[1].operations, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(operations[2].operations, ElementsAre(1, 0, 1, 1, 0, 0));
  EXPECT_THAT(operations[2].bytes_sent, ElementsAre(320, 0, 320, 320, 0, 0));
  expect_by_plan(operations[1], placement.inside[2], placement);
  expect_by_plan(operations[4], placement.inside[2], placement);
}

TEST(OperationPlanner, ActsInOneStrokeIfNoRankSharesAHost) {
  const Placement placement = on_hosts({1, 1, 1}, "shm", "tcp");
  OperationPlanner planner(placement);
  planner.all_reduce("x", DType::float32, 10);
  EXPECT_THAT(titles_of(planner.take()), ElementsAre("all_reduce over tcp: x"));
}

TEST(OperationPlanner, PutsOnlyAlikeMessagesTogether) {
  const Placement placement = on_one_host(2, "threads");
  OperationPlanner planner(placement);
  planner.send("x", 0, 1, DType::float32, 1);
  planner.send("x", 1, 0, DType::float32, 2);
  planner.all_reduce("x", DType::float32, 1);
  planner.send("y", 0, 1, DType::float32, 1);
  planner.send("x", 0, 1, DType::uint8, 1);
  planner.in({2, -1, 1});
  planner.send("x", 0, 1, DType::uint8, 1);
  const std::vector<Operation> operations = planner.take();
  ASSERT_EQ(operations.size(), 5U);
  EXPECT_THAT(operations[0].operations, ElementsAre(1, 1));
  EXPECT_THAT(operations[0].bytes_sent, ElementsAre(4, 8));
  EXPECT_EQ(operations[4].steps, (Steps{2, -1, 1}));
}

TEST(OperationPlanner, RemembersInWhichStepsAnOperationTakesPlace) {
  const Placement placement = on_one_host(2, "threads");
  OperationPlanner planner(placement);
  planner.all_reduce("x", DType::float32, 1);
  planner.in({3, 9, 2});
  planner.broadcast("y", DType::float32, 1);
  const std::vector<Operation> operations = planner.take();
  ASSERT_EQ(operations.size(), 2U);
  EXPECT_EQ(operations[0].steps, Steps{});
  EXPECT_EQ(operations[1].steps, (Steps{3, 9, 2}));
}

TEST(Operation, GivesItsFiguresAsJson) {
  Operation operation{"x", "all_reduce", "gloo", "", DType::float32, 4, {}, {1, 1}, {16, 16}};
  EXPECT_EQ(operation.to_json().dump(),
            R"({"content":"x","name":"all_reduce","path":"gloo","dtype":"float32","elements":4,)"
            R"("operations":[1,1],"bytes_sent":[16,16]})");
  operation.algorithm = "ring";
  operation.steps = {3, -1, 2};
  EXPECT_EQ(operation.to_json().dump(),
            R"({"content":"x","name":"all_reduce","path":"gloo","dtype":"float32","elements":4,)"
            R"("operations":[1,1],"bytes_sent":[16,16],"algorithm":"ring",)"
            R"("steps":{"first":3,"last":-1,"every":2}})");
}

}  // namespace
}  // namespace trireme::plan::operation_test
