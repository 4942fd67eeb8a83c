// Events on their way from workers to the launcher, over real connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/membership/protocol.h>

#include "job.h"

namespace trireme::membership::worker_events_test {
namespace {

using monitor::FaultRecord;
using monitor::Told;

Told fault(int rank, int64_t step) {
  return {.rank = rank, .time = 1, .event = FaultRecord{step, "kill:rank=0"}};
}

// Collects events until there are so many. The time-out of the test ends a wait in vain.
std::vector<Told> await(Coordinator& coordinator, size_t count) {
  std::vector<Told> events;
  for (const Deadline deadline = soon(); events.size() < count && !deadline.expired();) {
    for (Told& told : coordinator.take_events().events) events.push_back(std::move(told));
    std::this_thread::sleep_for(Milliseconds(5));
  }
  return events;
}

TEST(WorkerEvents, TravelWithHeartbeats) {
  TestJob job(2);
  job.join_all();
  job[0].tell_event(fault(0, 1));
  EXPECT_EQ(await(job.coordinator, 1).at(0).rank, 0);
  job[1].tell_event(fault(1, 2));
  const std::vector<Told> events = await(job.coordinator, 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].rank, 1);
  EXPECT_EQ(std::get<FaultRecord>(events[0].event).step, 2);
}

TEST(WorkerEvents, ComeBeforeTheGoodbyeOfAWorkerThatLeaves) {
  TestJob job(1, {.timeout = Milliseconds(10000), .heartbeat_interval = Milliseconds(60000)});
  job.join_all();
  job[0].tell_event(fault(0, 1));
  EXPECT_TRUE(job.coordinator.take_events().empty()) << "no heartbeat has taken it along";
  job[0].leave();
  ASSERT_TRUE(job.coordinator.wait_until_all_left(soon()));
  EXPECT_EQ(job.coordinator.take_events().events.size(), 1u);
}

TEST(WorkerEvents, WaitInAQueueForTheMemberOfTheNextGeneration) {
  const auto queue = std::make_shared<EventQueue>(kEventsOfAHeartbeat);
  const MemberOptions slow{
      .timeout = Milliseconds(10000), .heartbeat_interval = Milliseconds(60000), .events = queue};
  {
    TestJob lost(1, slow);
    lost.join_all();
    lost[0].tell_event(fault(0, 1));
  }
  TestJob next(1, slow);
  next.join_all();
  next[0].send_events();
  EXPECT_EQ(await(next.coordinator, 1).size(), 1u);
}

TEST(WorkerEvents, ThatComeTooFastAreDroppedAndCounted) {
  TestJob job(1, {.timeout = Milliseconds(10000), .heartbeat_interval = Milliseconds(60000)});
  job.join_all();
  for (int64_t step = 1; step <= 1000; ++step) job[0].tell_event(fault(0, step));
  job[0].leave();
  ASSERT_TRUE(job.coordinator.wait_until_all_left(soon()));
  const EventBatch batch = job.coordinator.take_events();
  EXPECT_LT(batch.events.size(), 1000u);
  EXPECT_EQ(static_cast<int64_t>(batch.events.size()) + batch.dropped, 1000);
}

TEST(WorkerEvents, OfASideTaskCountForNoRank) {
  Coordinator coordinator(kAnyPort, kToken, options_for(1), std::nullopt, {},
                          Roles({{.name = "evaluator", .count = 2}}));
  const auto join = [&](int index) {
    return std::make_unique<Member>(
        coordinator.endpoint(), kToken, Task{"evaluator", index}, Facts{},
        MemberOptions{.timeout = Milliseconds(10000), .heartbeat_interval = Milliseconds(20)});
  };
  const auto one = join(0), other = join(1);
  one->tell_event(fault(0, 7));
  other->tell_event(fault(0, 7));
  const std::vector<Told> events = await(coordinator, 2);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_LT(events[0].rank, 0);
  EXPECT_LT(events[1].rank, 0);
  EXPECT_NE(events[0].rank, events[1].rank) << "steps of two tasks would be put together";
  one->set("address", "here");  // The task has not been lost.
  one->leave();
  other->leave();
}

}  // namespace
}  // namespace trireme::membership::worker_events_test
