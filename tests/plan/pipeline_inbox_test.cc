// The messages that a stage may receive ahead.
#include <gmock/gmock.h>
#include <trireme/plan/pipeline_inbox.h>
#include <algorithm>

#include "pipeline_cases.h"

namespace trireme::plan::pipeline_inbox_test {
namespace {

using ::testing::ElementsAre;

std::vector<bool> all_of(const PipelinePlan& plan) {
  return std::vector<bool>(static_cast<size_t>(plan.facts.microbatches), true);
}

TEST(PipelineInbox, HasTheMessagesOfEveryScheduleOnce) {
  for_each_pipeline([](const PipelinePlan& plan) {
    int64_t sent = 0, received = 0;
    for (int stage = 0; stage < plan.facts.stages; ++stage) {
      sent += plan.messages_sent(stage);
      for (const PipelineInbox& inbox : inboxes_of(plan, stage, all_of(plan))) {
        EXPECT_NE(inbox.from, stage);
        received += std::ssize(inbox.after);
        EXPECT_TRUE(std::ranges::is_sorted(inbox.after)) << name_of(plan.facts);
      }
    }
    EXPECT_EQ(sent, received) << name_of(plan.facts);
  });
}

TEST(PipelineInbox, ReceivesBeginWhenTheSenderNeedsNothingMore) {
  const PipelinePlan gpipe = plan_pipeline({"gpipe", 2, 3});
  // The second stage sends no gradient before it has all activations.
  const auto first = inboxes_of(gpipe, 0, all_of(gpipe));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].from, 1);
  EXPECT_THAT(first[0].after, ElementsAre(3, 3, 3));
  // The first stage sends all activations before it needs a gradient.
  const auto second = inboxes_of(gpipe, 1, all_of(gpipe));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_THAT(second[0].after, ElementsAre(0, 0, 0));

  // Stage 0: F0 F1 B0 F2 B1 B2. Stage 1: F0 B0 F1 B1 F2 B2.
  const PipelinePlan turns = plan_pipeline({"1f1b", 2, 3});
  EXPECT_THAT(inboxes_of(turns, 1, all_of(turns))[0].after, ElementsAre(0, 0, 1));
  EXPECT_THAT(inboxes_of(turns, 0, all_of(turns))[0].after, ElementsAre(1, 2, 3));
}

TEST(PipelineInbox, AMiddleStageHearsFromBothSides) {
  const PipelinePlan plan = plan_pipeline({"1f1b", 3, 4});
  const auto inboxes = inboxes_of(plan, 1, all_of(plan));
  ASSERT_EQ(inboxes.size(), 2u);
  EXPECT_EQ(inboxes[0].from, 0);
  EXPECT_EQ(inboxes[1].from, 2);
}

TEST(PipelineInbox, MicroBatchesWithoutSamplesSendNothing) {
  const PipelinePlan plan = plan_pipeline({"1f1b", 2, 3});
  EXPECT_THAT(inboxes_of(plan, 1, {true, true, false})[0].after, ElementsAre(0, 0));
  EXPECT_THAT(inboxes_of(plan, 0, {true, true, false})[0].after, ElementsAre(1, 2));
  EXPECT_TRUE(inboxes_of(plan, 1, {false, false, false}).empty());
}

}  // namespace
}  // namespace trireme::plan::pipeline_inbox_test
