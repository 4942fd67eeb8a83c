#include <trireme/membership/notices.h>

#include <gmock/gmock.h>

namespace trireme::membership::notices_test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr Stalls::Time kStart{};

WorkerNow worker(int number, PhaseAt at, std::chrono::milliseconds since = 0ms) {
  return {number,
          number,
          100 + number,
          std::string(1, static_cast<char>('a' + number)),
          {std::move(at), kStart + since, {}}};
}
PhaseAt in(Phase phase, int64_t step) { return {phase, step}; }
PhaseAt waits(int64_t step, int64_t number, const std::string& operation = "gradients",
              int64_t bytes = 0) {
  return {Phase::exchange, step, {number, true, true, operation, bytes}};
}
PhaseAt works_in(int64_t step, int64_t number, const std::string& operation) {
  return {Phase::exchange, step, {number, true, false, operation, 0}};
}

TEST(Stalls, NameTheWorkerThatKeepsTheOthersWaiting) {
  Stalls stalls(10s);
  const std::vector<WorkerNow> present{worker(0, waits(40, 1)), worker(1, in(Phase::forward, 40)),
                                       worker(2, waits(40, 1))};
  EXPECT_THAT(stalls.judge(present, kStart + 9999ms), IsEmpty());
  const auto notices = stalls.judge(present, kStart + 10'200ms);
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(
      notices[0].text,
      "stalled: worker 1 (host b, pid 101) has been in forward of step 40 for 10.2 s; worker "
      "0 (host a) and worker 2 (host c) wait "
      "for it in "
      "exchange of step 40 (collective 1: gradients)");
  EXPECT_EQ(notices[0].pid, 101);
  EXPECT_EQ(notices[0].record.at("kind"), "stalled");
  EXPECT_EQ(notices[0].record.at("rank"), 1);
  EXPECT_EQ(notices[0].record.at("phase"), "forward");
  EXPECT_EQ(notices[0].record.at("step"), 40);
  EXPECT_EQ(notices[0].record.at("waiting"), Json({0, 2}));
  EXPECT_THAT(stalls.judge(present, kStart + 20s), IsEmpty()) << "once in a place";
}

TEST(Stalls, DistinguishWorkInACollectiveFromWaitingInIt) {
  Stalls stalls(10s);
  const auto notices = stalls.judge(
      {worker(0, waits(40, 3, "update")), worker(1, in(Phase::optimizer, 40))}, kStart + 11s);
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_THAT(notices[0].text,
              HasSubstr("worker 1 (host b, pid 101) has been in optimizer of step "
                        "40 for 11.0 s; worker 0 (host a) waits "
                        "for it in exchange of step 40 (collective 3: update)"));
  Stalls inside(10s);
  const auto reducing = inside.judge(
      {worker(0, waits(40, 2, "all_reduce")), worker(1, works_in(40, 2, "all_reduce"))},
      kStart + 11s);
  ASSERT_THAT(reducing, SizeIs(1));
  EXPECT_THAT(reducing[0].text,
              HasSubstr("worker 1 (host b, pid 101) has been in exchange of step "
                        "40 (collective 2: all_reduce) for"));
}

TEST(Stalls, AreNotReportedWhenNoWorkerWaitsForLong) {
  Stalls stalls(10s);
  EXPECT_THAT(stalls.judge({worker(0, in(Phase::data, 1)), worker(1, in(Phase::forward, 1))},
                           kStart + 60s),
              IsEmpty());
  EXPECT_THAT(
      stalls.judge({worker(0, waits(1, 1), 55s), worker(1, in(Phase::forward, 1))}, kStart + 60s),
      IsEmpty());
  EXPECT_THAT(
      stalls.judge({worker(0, waits(1, 1)), worker(1, in(Phase::forward, 1), 55s)}, kStart + 60s),
      IsEmpty());
  EXPECT_THAT(
      stalls.judge({worker(0, waits(1, 1)), worker(1, in(Phase::forward, 2))}, kStart + 60s),
      IsEmpty())
      << "it is further";
}

TEST(Stalls, NameTheWorkerThatCalledADifferentOperation) {
  Stalls stalls(10s);
  const auto notices = stalls.judge(
      {worker(0, waits(40, 2, "all_reduce", 4000)), worker(1, waits(40, 2, "broadcast", 8)),
       worker(2, waits(40, 2, "all_reduce", 4000))},
      kStart + 12s);
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].text,
            "worker 1 (host b, pid 101) called a different operation than the others: it has "
            "waited in exchange of step 40 (collective 2: broadcast of 8 B) for 12.0 s; "
            "worker 0 (host a) in exchange of step 40 (collective 2: all_reduce of 4.0 KB) for "
            "12.0 s and worker 2 (host c) in exchange of step 40 (collective 2: all_reduce of "
            "4.0 KB) for 12.0 s");
  EXPECT_EQ(notices[0].record.at("kind"), "mismatched");
}

TEST(Stalls, NameBothOfTwoWorkersInDifferentPlaces) {
  Stalls stalls(10s);
  const auto notices =
      stalls.judge({worker(0, waits(40, 2)), worker(1, waits(41, 1))}, kStart + 12s);
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_THAT(notices[0].text, HasSubstr("the workers wait for each other in different places"));
  EXPECT_THAT(notices[0].text,
              HasSubstr("worker 0 (host a) in exchange of step 40 (collective 2: gradients)"));
  EXPECT_THAT(notices[0].text,
              HasSubstr("worker 1 (host b) in exchange of step 41 (collective 1: gradients)"));
}

TEST(Stalls, NameTheConnectionsWhenAllWorkersAreInOnePlace) {
  Stalls stalls(10s);
  const std::vector<WorkerNow> present{worker(0, waits(40, 2, "all_reduce")),
                                       worker(1, waits(40, 2, "all_reduce"))};
  const auto notices = stalls.judge(present, kStart + 12s);
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_THAT(notices[0].text, HasSubstr("the connections between them do not work"));
  EXPECT_EQ(notices[0].record.at("kind"), "unconnected");
  EXPECT_THAT(stalls.judge(present, kStart + 13s), IsEmpty());
}

PhaseAt agrees(int64_t step, int64_t number) { return waits(step, number, "agreement"); }

TEST(Deadlock, IsProvenByTwoOperationsWithOneNumber) {
  const Stalls stalls(10s);
  const std::vector<WorkerNow> present{worker(0, waits(40, 1, "all_reduce", 4000)),
                                       worker(1, agrees(40, 1)),
                                       worker(2, waits(40, 1, "all_reduce", 4000))};
  EXPECT_FALSE(stalls.find_deadlock(present, {}, kStart + 1999ms));
  const auto found = stalls.find_deadlock(present, {}, kStart + 2s);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->text,
              HasSubstr("worker 1 (host b, pid 101) called a different operation than "
                        "the others: it has waited in exchange of step 40 "
                        "(collective 1: agreement)"));
  EXPECT_EQ(found->record.at("rank"), 1);
  EXPECT_TRUE(stalls.find_deadlock(
      {worker(0, waits(3, 1, "all_reduce", 16)), worker(1, waits(3, 1, "all_reduce", 4000))}, {},
      kStart + 2s));
}

TEST(Deadlock, IsNotProvenWhileAWorkerMayComeOrIsBehind) {
  const Stalls stalls(10s);
  const auto none = [&](std::vector<WorkerNow> present, std::chrono::milliseconds at = 9s) {
    return !stalls.find_deadlock(present, {}, kStart + at);
  };
  EXPECT_TRUE(none({}));
  EXPECT_TRUE(none({worker(0, waits(40, 1)), worker(1, in(Phase::forward, 40))})) << "it computes";
  EXPECT_TRUE(none({worker(0, waits(40, 1)), worker(1, waits(40, 1))})) << "the same";
  EXPECT_TRUE(none({worker(0, waits(40, 1)), worker(1, waits(40, 2, "update"))}))
      << "it is further";
  EXPECT_TRUE(none({worker(0, waits(40, 1)), worker(1, agrees(40, 1), 8s)})) << "it has just come";
  EXPECT_TRUE(
      none({worker(0, waits(40, 1)), worker(1, waits(40, 1, "all_gather of some ranks"))}));
  EXPECT_TRUE(
      none({worker(0, waits(40, 1, "all_to_all", 4)), worker(1, waits(40, 1, "all_to_all", 8))}));
  // Numbers of different steps tell nothing. Only a long wait does.
  const std::vector<WorkerNow> elsewhere{worker(0, waits(1, 1)), worker(1, agrees(-1, 8))};
  EXPECT_TRUE(none(elsewhere));
  EXPECT_FALSE(none(elsewhere, 10s));
  EXPECT_TRUE(none({worker(0, waits(1, 1)), worker(1, waits(2, 1))}, 60s));
}

TEST(Deadlock, IsAWaitForAWorkerThatHasLeftBefore) {
  const Stalls stalls(10s);
  const auto found = stalls.find_deadlock({worker(0, waits(4, 1))},
                                          {worker(1, in(Phase::leaving, 4))}, kStart + 2s);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->text,
            "worker 1 (host b, pid 101) has left the job in leaving of step 4, and worker 0 (host "
            "a) waits for it in exchange of step 4 (collective 1: gradients)");
  // Others may still be in the last collective.
  const WorkerNow done = worker(1, {Phase::leaving, 4, {1, false, false, "", 0}});
  EXPECT_FALSE(stalls.find_deadlock({worker(0, waits(4, 1))}, {done}, kStart + 60s));
  EXPECT_TRUE(stalls.find_deadlock({worker(0, waits(4, 2))}, {done}, kStart + 2s));
  EXPECT_FALSE(stalls.find_deadlock({worker(0, waits(4, 1))}, {worker(1, in(Phase::idle, -1))},
                                    kStart + 60s))
      << "its steps are not known";
}

TEST(Stalls, AreNotReportedForAnAgreement) {
  Stalls stalls(10s);
  EXPECT_THAT(
      stalls.judge({worker(0, agrees(7, 1)), worker(1, in(Phase::evaluate, 7))}, kStart + 60s),
      IsEmpty());
}

TEST(Circumstances, TellWhichWorkerWaitsAndWhere) {
  EXPECT_EQ(
      circumstances({in(Phase::backward, 40), kStart, {}},
                    {worker(0, waits(40, 1)), worker(2, in(Phase::forward, 40))}, kStart + 310ms),
      "it had been there for 310 ms, and worker 0 (host a) waits for it in exchange of step 40 "
      "(collective 1: gradients)");
  EXPECT_EQ(circumstances({in(Phase::backward, 40), kStart, {}}, {}, kStart + 2s),
            "it had been there for 2.0 s");
  EXPECT_EQ(circumstances({waits(40, 2), kStart, {}}, {}, kStart + 2s),
            "it had been there (collective 2: gradients) for 2.0 s");
}

}  // namespace
}  // namespace trireme::membership::notices_test
