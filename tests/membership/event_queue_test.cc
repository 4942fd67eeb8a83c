#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/membership/event_queue.h>
#include <vector>

namespace trireme::membership::event_queue_test {
namespace {

using monitor::FaultRecord;
using monitor::StepRecord;
using monitor::Told;
using ::testing::ElementsAre;

Told step(int rank, int64_t number) {
  return {.rank = rank, .time = 1, .event = StepRecord{.step = number}};
}
Told fault(int rank, int64_t number) {
  return {.rank = rank, .time = 1, .event = FaultRecord{number, "kill:rank=0"}};
}
// "rank:step" of steps, and "rank:step!" of faults.
std::vector<std::string> names_of(const EventBatch& batch) {
  std::vector<std::string> names;
  for (const Told& told : batch.events)
    if (const auto* const each = std::get_if<StepRecord>(&told.event))
      names.push_back(fmt::format("{}:{}", told.rank, each->step));
    else
      names.push_back(fmt::format("{}:{}!", told.rank, std::get<FaultRecord>(told.event).step));
  return names;
}

TEST(EventQueue, KeepsOnlyTheNewestOfStepsThatFollowEachOther) {
  EventQueue queue(10);
  for (const Told& told :
       {step(0, 1), step(1, 1), step(0, 2), fault(0, 2), step(1, 2), step(0, 3), step(0, 4)})
    queue.add(told);
  EXPECT_THAT(names_of(queue.take()), ElementsAre("0:2", "1:2", "0:2!", "0:4"));
  EXPECT_TRUE(queue.take().empty());
}

TEST(EventQueue, MergesOnlyStepsOfOneEpoch) {
  EventQueue queue(10);
  for (int64_t number = 1; number <= 6; ++number)
    queue.add({.rank = 0,
               .time = 1,
               .event = StepRecord{.step = number, .epoch = (number - 1) / 3, .samples = 8}});
  const EventBatch batch = queue.take();
  EXPECT_THAT(names_of(batch), ElementsAre("0:3", "0:6"));
  for (const Told& told : batch.events) EXPECT_EQ(std::get<StepRecord>(told.event).samples, 24);
}

TEST(EventQueue, AlwaysHasRoomForTheEndOfTheRun) {
  EventQueue queue(1);
  queue.add(fault(0, 1));
  queue.add({.rank = 0, .time = 1, .event = monitor::RunEnd{}});
  EXPECT_EQ(queue.take().events.size(), 2u);
}

TEST(EventQueue, MergesStepsOfSeveralEpochsOnceItIsHalfFull) {
  EventQueue queue(6);
  for (int64_t number = 1; number <= 100; ++number)
    queue.add({.rank = 0,
               .time = 1,
               .event = StepRecord{.step = number, .epoch = number, .samples = 8}});
  queue.add(fault(1, 7));
  const EventBatch batch = queue.take();
  EXPECT_THAT(names_of(batch), ElementsAre("0:1", "0:2", "0:100", "1:7!"));
  EXPECT_EQ(std::get<StepRecord>(batch.events[2].event).samples, 98 * 8);
  EXPECT_EQ(batch.dropped, 0);
}

TEST(EventQueue, DropsStepsBeforeAnythingElse) {
  EventQueue queue(3);
  for (const Told& told : {fault(0, 1), step(0, 1), fault(0, 2), fault(0, 3), fault(0, 4)})
    queue.add(told);
  const EventBatch batch = queue.take();
  EXPECT_THAT(names_of(batch), ElementsAre("0:1!", "0:2!", "0:3!"));
  EXPECT_EQ(batch.dropped, 2);
}

TEST(EventQueue, CountsWhatItDropsWhenItIsFull) {
  EventQueue queue(2);
  for (int64_t number = 1; number <= 5; ++number) queue.add(fault(0, number));
  const EventBatch full = queue.take();
  EXPECT_THAT(names_of(full), ElementsAre("0:1!", "0:2!"));
  EXPECT_EQ(full.dropped, 3);
  queue.add(fault(0, 6));
  EXPECT_EQ(queue.take().dropped, 0);
}

TEST(EventQueue, StillTakesTheNewestStepWhenItIsFull) {
  EventQueue queue(1);
  queue.add(step(0, 1));
  queue.add(step(0, 2));
  const EventBatch batch = queue.take();
  EXPECT_THAT(names_of(batch), ElementsAre("0:2"));
  EXPECT_EQ(batch.dropped, 0);
}

TEST(EventQueue, PassesOnWhatWasDroppedBefore) {
  EventQueue queue(10);
  queue.add(EventBatch{{fault(1, 4)}, 7});
  queue.add(EventBatch{{fault(2, 5)}, 1});
  const EventBatch batch = queue.take();
  EXPECT_THAT(names_of(batch), ElementsAre("1:4!", "2:5!"));
  EXPECT_EQ(batch.dropped, 8);
}

TEST(EventQueue, ItsMessagesComeBackAndDamagedEventsCountAsDropped) {
  Json message = events_message({{step(3, 9), fault(3, 9)}, 2});
  const EventBatch read = events_from(message);
  EXPECT_THAT(names_of(read), ElementsAre("3:9", "3:9!"));
  EXPECT_EQ(read.dropped, 2);
  message["events"][0].erase("loss");
  const EventBatch damaged = events_from(message);
  EXPECT_THAT(names_of(damaged), ElementsAre("3:9!"));
  EXPECT_EQ(damaged.dropped, 3);
}

}  // namespace
}  // namespace trireme::membership::event_queue_test
