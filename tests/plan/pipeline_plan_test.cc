#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/pipeline_run.h>
#include <trireme/plan/pipeline_times.h>
#include <algorithm>
#include <map>
#include <set>

#include "../base/expect_error.h"
#include "pipeline_cases.h"

namespace trireme::plan::pipeline_plan_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(PipelinePlan, IsAcceptedByItsCheckerForEverySmallSize) {
  int plans = 0;
  for_each_pipeline([&](const PipelinePlan& plan) {
    EXPECT_NO_THROW(check(plan)) << name_of(plan.facts);
    ++plans;
  });
  EXPECT_EQ(plans, 6 * 10 * (5 + 2 + 1));
}

TEST(PipelinePlan, EndsForLargerSizesToo) {
  for (const std::string& schedule : pipeline_schedules())
    for (const int stages : {8, 13})
      for (const int microbatches : {7, 25, 26, 64})
        EXPECT_NO_THROW(check(plan_pipeline({schedule, stages, microbatches})))
            << schedule << " " << stages << " " << microbatches;
}

TEST(PipelinePlan, RunsEachTaskOfEachPartOncePerMicrobatch) {
  for_each_pipeline([](const PipelinePlan& plan) {
    std::map<PipelineTask, std::set<std::pair<int, int>>> done;
    size_t steps = 0;
    for (const auto& own : plan.steps) {
      for (const auto& [task, microbatch, part] : own) done[task].insert({microbatch, part});
      steps += own.size();
    }
    const auto all = static_cast<size_t>(plan.parts() * plan.facts.microbatches);
    const bool splits = plan.facts.schedule.starts_with("zb");
    EXPECT_EQ(steps, (splits ? 3 : 2) * all) << name_of(plan.facts);
    EXPECT_EQ(done.size(), splits ? 3 : 2) << name_of(plan.facts);
    for (const auto& [task, places] : done) EXPECT_EQ(places.size(), all) << name_of(plan.facts);
  });
}

TEST(PipelinePlan, SendsEachActivationForwardAndEachGradientBackOnce) {
  for_each_pipeline([](const PipelinePlan& plan) {
    std::set<int> tags;
    std::map<std::pair<int, int>, int64_t> sent, needed;
    for_each_step(plan, [&](const PipelineStep& step, PipelinePlace place) {
      if (const auto message = plan.sends(step)) {
        EXPECT_EQ(message->from, place.stage);
        EXPECT_NE(message->to, place.stage);
        EXPECT_TRUE(tags.insert(plan.tag_of(*message)).second) << name_of(plan.facts);
        EXPECT_LT(plan.tag_of(*message), 2 * plan.parts() * plan.facts.microbatches);
        ++sent[{message->from, message->to}];
      }
      if (const auto message = plan.needs(step)) {
        EXPECT_EQ(message->to, place.stage);
        EXPECT_EQ(message->part, step.part);
        ++needed[{message->from, message->to}];
      }
    });
    EXPECT_EQ(sent, needed) << name_of(plan.facts);
    // In a V the last part of the way down and the first of the way up are on one stage.
    int between = plan.facts.stages == 1 ? 0 : plan.parts() - 1;
    if (plan.facts.fold == PipelineFold::v && between > 0) --between;
    EXPECT_EQ(static_cast<int>(tags.size()), 2 * between * plan.facts.microbatches);
    int64_t messages = 0;
    for (int stage = 0; stage < plan.facts.stages; ++stage) messages += plan.messages_sent(stage);
    EXPECT_EQ(messages, static_cast<int64_t>(tags.size()));
  });
}

TEST(PipelinePlan, DealsPartsOutInALoopOrInAV) {
  const PipelinePlan loop = plan_pipeline({"interleaved", 3, 3, 2});
  EXPECT_THAT(loop.parts_of(0), ElementsAre(0, 3));
  EXPECT_THAT(loop.parts_of(2), ElementsAre(2, 5));
  EXPECT_EQ(loop.stage_of(4), 1);
  const PipelinePlan v = plan_pipeline({"zbv", 3, 3});
  EXPECT_THAT(v.parts_of(0), ElementsAre(0, 5));
  EXPECT_THAT(v.parts_of(2), ElementsAre(2, 3));
  EXPECT_EQ(v.stage_of(4), 1);
  EXPECT_EQ(v.needs({PipelineTask::forward, 0, 3}), std::nullopt);
}

// The orders that the papers' figures show.
TEST(PipelinePlan, HasTheOrdersOfThePapers) {
  const auto text = [](const PipelineFacts& facts) { return plan_pipeline(facts).to_text(); };
  EXPECT_EQ(text({"naive", 2, 2}), "0F0 0B0 0F1 0B1\n1F0 1B0 1F1 1B1\n");
  EXPECT_EQ(text({"gpipe", 2, 3}), "0F0 0F1 0F2 0B2 0B1 0B0\n1F0 1F1 1F2 1B2 1B1 1B0\n");
  EXPECT_EQ(text({"1f1b", 2, 3}), "0F0 0F1 0B0 0F2 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2\n");
  EXPECT_EQ(text({"interleaved", 2, 2, 2}),
            "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1\n1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1\n");
  EXPECT_EQ(text({"zbh1", 2, 3}),
            "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2\n1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2\n");
  EXPECT_EQ(text({"zbh2", 2, 3}),
            "0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2\n1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2\n");
  EXPECT_EQ(text({"zbv", 1, 2}), "0F0 1F0 1I0 1W0 0F1 0I0 0W0 1F1 1I1 1W1 0I1 0W1\n");
}

TEST(PipelinePlan, TakesFewerThanWholeGroupsOfMicrobatches) {
  // Megatron's schedule asks for a multiple of the stages. Here a smaller group comes first.
  EXPECT_EQ(plan_pipeline({"interleaved", 2, 3, 2}).to_text(),
            "0F0 2F0 0F1 0F2 2B0 2F1 2F2 0B0 2B1 2B2 0B1 0B2\n"
            "1F0 3F0 3B0 1F1 1F2 1B0 3F1 3B1 3F2 3B2 1B1 1B2\n");
}

TEST(PipelinePlan, KeepsTheBackwardOfOneMicrobatchInTheOrderOfOneDevice) {
  // Sums of gradients over the micro-batches then have the bits of one device. GPipe goes back
  // from the last micro-batch.
  for_each_pipeline([](const PipelinePlan& plan) {
    const bool ascending = plan.facts.schedule != "gpipe";
    std::map<std::pair<int, PipelineTask>, int> last;
    for_each_step(plan, [&](const PipelineStep& step, PipelinePlace) {
      if (step.task == PipelineTask::forward) return;
      const auto [before, is_first] = last.insert({{step.part, step.task}, step.microbatch});
      if (!is_first) {
        EXPECT_EQ(step.microbatch > before->second, ascending) << name_of(plan.facts);
      }
      before->second = step.microbatch;
    });
  });
}

TEST(PipelinePlan, RefusesFactsThatMakeNoPipelineByName) {
  const auto refused = [](const PipelineFacts& facts) {
    return message_of(ErrorCode::invalid_argument, [&] { plan_pipeline(facts); });
  };
  EXPECT_THAT(refused({"1f1c", 2, 2}),
              AllOf(HasSubstr("'1f1c' is unknown"), HasSubstr("did you mean '1f1b'?"),
                    HasSubstr("naive, gpipe, 1f1b, interleaved, zbh1, zbh2, zbv")));
  EXPECT_THAT(refused({"1f1b", 0, 2}), HasSubstr("0 stages"));
  EXPECT_THAT(refused({"1f1b", 2, -1}), HasSubstr("-1 microbatches"));
  EXPECT_THAT(refused({"1f1b", 2, 2, -2}), HasSubstr("-2 chunks"));
  EXPECT_THAT(refused({"1f1b", 2, 2, 2}),
              AllOf(HasSubstr("one part"), HasSubstr("interleaved with chunks 2")));
  EXPECT_THAT(refused({"interleaved", 2, 2, 1}),
              AllOf(HasSubstr("at least 2 chunks"), HasSubstr("1f1b")));
  EXPECT_THAT(refused({"zbv", 2, 2, 3}), HasSubstr("two parts"));
  EXPECT_THAT(refused({"gpipe", 1000, 1'000'000}),
              HasSubstr("more than a pipeline plan may have"));
  EXPECT_THAT(refused({"zbh2", 1'000'000, 1}), HasSubstr("more than a pipeline plan may have"));
  EXPECT_THAT(refused({"interleaved", 2, 2, 2'000'000'000}), HasSubstr("may have"));
}

}  // namespace
}  // namespace trireme::plan::pipeline_plan_test
