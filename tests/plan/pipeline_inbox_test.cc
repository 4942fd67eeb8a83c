// The messages that a stage may receive ahead.
#include <gmock/gmock.h>
#include <trireme/plan/pipeline_inbox.h>
#include <algorithm>
#include <set>

#include "pipeline_cases.h"

namespace trireme::plan::pipeline_inbox_test {
namespace {

using ::testing::ElementsAre;

std::vector<bool> all_of(const PipelinePlan& plan) {
  return std::vector<bool>(static_cast<size_t>(plan.facts.microbatches), true);
}

// The messages that `from` sends to `stage` if that stops behind its message number `stop`.
int messages_that_come(const PipelinePlan& plan, int stage, int from, int stop) {
  std::vector<size_t> next(plan.steps.size());
  std::set<int> sent;
  int own = 0, came = 0;
  for (bool moves = true; moves;) {
    moves = false;
    for (int each = 0; each < plan.facts.stages; ++each) {
      const auto& steps = plan.steps[static_cast<size_t>(each)];
      for (size_t& i = next[static_cast<size_t>(each)]; i < steps.size(); ++i, moves = true) {
        if (each == stage && own == stop) break;
        if (const auto message = plan.needs(steps[i]);
            message && !sent.contains(plan.tag_of(*message)))
          break;
        const auto message = plan.sends(steps[i]);
        if (!message) continue;
        sent.insert(plan.tag_of(*message));
        own += each == stage;
        came += each == from && message->to == stage;
      }
    }
  }
  return came;
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

// Parts 0 and 3 are on stage 0. Stage 2 sends it the input of part 3, for which it needs a message
// of stage 1 only; but that depends on the first message of stage 0.
TEST(PipelineInbox, AMessageThatComesBackByWayOfOthersDependsOnThisStage) {
  const PipelinePlan plan =
      plan_pipeline({.schedule = "interleaved", .stages = 3, .microbatches = 6, .chunks = 2});
  for (const PipelineInbox& inbox : inboxes_of(plan, 0, all_of(plan)))
    for (const int after : inbox.after) EXPECT_GE(after, 1) << "from stage " << inbox.from;
}

// When a receive begins, the sender can come to its message without any step of this stage.
TEST(PipelineInbox, NoReceiveWaitsForAStepOfThisStage) {
  for_each_pipeline([](const PipelinePlan& plan) {
    for (int stage = 0; stage < plan.facts.stages; ++stage)
      for (const PipelineInbox& inbox : inboxes_of(plan, stage, all_of(plan)))
        for (size_t i = 0; i < inbox.after.size(); ++i)
          EXPECT_GE(messages_that_come(plan, stage, inbox.from, inbox.after[i]),
                    static_cast<int>(i) + 1)
              << name_of(plan.facts) << ": message " << i << " of stage " << inbox.from
              << " to stage " << stage;
  });
}

TEST(PipelineInbox, MicroBatchesWithoutSamplesSendNothing) {
  const PipelinePlan plan = plan_pipeline({"1f1b", 2, 3});
  EXPECT_THAT(inboxes_of(plan, 1, {true, true, false})[0].after, ElementsAre(0, 0));
  EXPECT_THAT(inboxes_of(plan, 0, {true, true, false})[0].after, ElementsAre(1, 2));
  EXPECT_TRUE(inboxes_of(plan, 1, {false, false, false}).empty());
}

}  // namespace
}  // namespace trireme::plan::pipeline_inbox_test
