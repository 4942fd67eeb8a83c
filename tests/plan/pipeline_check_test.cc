#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/pipeline_run.h>
#include <trireme/plan/pipeline_text.h>
#include <algorithm>
#include <functional>
#include <map>

#include "../base/expect_error.h"
#include "pipeline_cases.h"

namespace trireme::plan::pipeline_check_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Whether the plan is right, found in another way than check() does: all results that can ever be
// there are collected until nothing changes.
bool is_right(const PipelinePlan& plan) {
  std::map<std::string, int> times;
  for (const auto& own : plan.steps)
    for (const PipelineStep& step : own) ++times[to_string(step)];
  const auto count = [&](int part, char letter, int m) {
    const auto found = times.find(std::to_string(part) + letter + std::to_string(m));
    return found == times.end() ? 0 : found->second;
  };
  for (int part = 0; part < plan.parts(); ++part) {
    for (int m = 0; m < plan.facts.microbatches; ++m) {
      const int b = count(part, 'B', m), i = count(part, 'I', m), w = count(part, 'W', m);
      const bool one_backward = (b == 1 && i == 0 && w == 0) || (b == 0 && i == 1 && w == 1);
      if (count(part, 'F', m) != 1 || !one_backward) return false;
    }
  }
  std::map<std::string, bool> ready;  // Activations "a<part>/<m>" and gradients "g<part>/<m>".
  const auto key = [](char kind, int part, int m) {
    return kind + std::to_string(part) + "/" + std::to_string(m);
  };
  std::vector<std::vector<PipelineStep>> left = plan.steps;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < left.size(); ++stage) {
      if (left[stage].empty()) continue;
      const auto [task, m, part] = left[stage].front();
      if (plan.stage_of(part) != static_cast<int>(stage)) return false;
      const bool starts = part == 0 || ready[key('a', part - 1, m)];
      const bool returns =
          ready[key('a', part, m)] && (part + 1 == plan.parts() || ready[key('g', part + 1, m)]);
      const bool can = task == PipelineTask::forward           ? starts
                       : task == PipelineTask::weight_gradient ? ready[key('g', part, m)]
                                                               : returns;
      if (!can) continue;
      if (task == PipelineTask::forward) ready[key('a', part, m)] = true;
      if (task == PipelineTask::backward || task == PipelineTask::input_gradient)
        ready[key('g', part, m)] = true;
      left[stage].erase(left[stage].begin());
      moved = true;
    }
  }
  return std::ranges::all_of(left, [](const auto& own) { return own.empty(); });
}

bool is_accepted(const PipelinePlan& plan) {
  try {
    check(plan);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("stage 0"), HasSubstr("place")));
    return false;
  }
}

std::vector<PipelinePlan> small_plans() {
  std::vector<PipelinePlan> plans;
  for (const std::string& schedule : pipeline_schedules())
    plans.push_back(plan_pipeline({schedule, 3, 4}));
  return plans;
}

TEST(PipelineCheck, RefusesSwappedStepsUnlessTheOrderStaysRight) {
  int refused = 0, harmless = 0;
  for (const PipelinePlan& plan : small_plans()) {
    for (size_t stage = 0; stage < plan.steps.size(); ++stage) {
      for (size_t i = 0; i < plan.steps[stage].size(); ++i) {
        for (size_t j = i + 1; j < plan.steps[stage].size(); ++j) {
          PipelinePlan changed = plan;
          std::swap(changed.steps[stage][i], changed.steps[stage][j]);
          const bool right = is_right(changed);
          EXPECT_EQ(is_accepted(changed), right) << changed.to_text();
          ++(right ? harmless : refused);
        }
      }
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(harmless, 50);  // Such as two forwards that nothing waits for yet.
}

TEST(PipelineCheck, RefusesEveryStepThatIsLeftOutRepeatedOrMoved) {
  for (const PipelinePlan& plan : small_plans()) {
    for (size_t stage = 0; stage < plan.steps.size(); ++stage) {
      for (size_t i = 0; i < plan.steps[stage].size(); ++i) {
        PipelinePlan changed = plan;
        auto& own = changed.steps[stage];
        const PipelineStep step = own[i];
        own.erase(own.begin() + static_cast<ptrdiff_t>(i));
        EXPECT_FALSE(is_accepted(changed)) << to_string(step);
        changed.steps[(stage + 1) % plan.steps.size()].push_back(step);
        EXPECT_FALSE(is_accepted(changed)) << to_string(step);
        changed = plan;
        changed.steps[stage].insert(changed.steps[stage].begin() + static_cast<ptrdiff_t>(i),
                                    step);
        EXPECT_FALSE(is_accepted(changed)) << to_string(step);
      }
    }
  }
}

// Checks a changed plan with 1F1B of 2 stages and 3 micro-batches:
//   0F0 0F1 0B0 0F2 0B1 0B2
//   1F0 1B0 1F1 1B1 1F2 1B2
std::string broken(const std::function<void(PipelinePlan&)>& change) {
  PipelinePlan plan = plan_pipeline({"1f1b", 2, 3});
  change(plan);
  return message_of(ErrorCode::internal, [&] { check(plan); });
}

TEST(PipelineCheck, NamesTheCauseAndMarksTheCell) {
  EXPECT_THAT(broken([](auto& plan) { plan.steps[1][2].microbatch = 0; }),
              AllOf(HasSubstr("stage 1, place 2: 1F0 is there a second time; the first is at "
                              "place 0"),
                    HasSubstr("stage 1 >1F0< 1B0 >1F0< 1B1 ")));
  EXPECT_THAT(
      broken([](auto& plan) { plan.steps[0].pop_back(); }),
      AllOf(HasSubstr("stage 0 never runs 0B2 (or 0I2 and 0W2)"), HasSubstr("0F2  0B1 > ? <\n")));
  EXPECT_THAT(broken([](auto& plan) { plan.steps[0].erase(plan.steps[0].begin()); }),
              HasSubstr("stage 0 never runs 0F0"));
  EXPECT_THAT(broken([](auto& plan) { plan.steps[0][0].part = 1; }),
              AllOf(HasSubstr("1F0 stands on another stage than its part, which is on stage 1"),
                    HasSubstr("stage 0 >1F0<")));
  EXPECT_THAT(broken([](auto& plan) { plan.steps[0][0].part = 2; }),
              HasSubstr("names part 2 of 2"));
  EXPECT_THAT(broken([](auto& plan) { plan.steps[0][5].microbatch = 3; }),
              HasSubstr("0B3 names micro-batch 3 of 3"));
  EXPECT_THAT(
      broken([](auto& plan) { plan.steps[0].push_back({PipelineTask::weight_gradient, 0, 0}); }),
      AllOf(HasSubstr("0W0 repeats a gradient"), HasSubstr(">0B0<")));
  EXPECT_THAT(broken([](auto& plan) { plan.steps[0][2].task = PipelineTask::input_gradient; }),
              HasSubstr("stage 0 never runs 0W0"));
  EXPECT_THAT(broken([](auto& plan) { plan.steps.pop_back(); }), HasSubstr("1 of 2 stages"));
  EXPECT_THAT(broken([](auto& plan) { plan.facts.chunks = 0; }), HasSubstr("0 chunks"));
  EXPECT_THAT(broken([](auto& plan) { plan.facts.fold = PipelineFold::v; }),
              HasSubstr("a V needs 2 parts"));
}

TEST(PipelineCheck, ShowsTheStepsOfADeadlockAsACircle) {
  // Stage 0 waits for a gradient before it sends what that gradient needs.
  EXPECT_THAT(broken([](auto& plan) { std::swap(plan.steps[0][1], plan.steps[0][4]); }),
              AllOf(HasSubstr("it would never end"),
                    HasSubstr("stage 0, place 1: 0B1 waits for 0F1, which stage 0 runs later"),
                    HasSubstr("stage 0  0F0 >0B1< 0B0 ")));
  // Each stage waits for the other one.
  EXPECT_THAT(broken([](auto& plan) {
                std::swap(plan.steps[0][1], plan.steps[0][2]);
                std::swap(plan.steps[1][1], plan.steps[1][2]);
              }),
              AllOf(HasSubstr("stage 0, place 1: 0B0 waits for 1B0, which stage 1 runs later; "
                              "stage 1, place 1: 1F1 waits for 0F1, which stage 0 runs later"),
                    HasSubstr("stage 0  0F0 >0B0< 0F1 "), HasSubstr("stage 1  1F0 >1F1< 1B0 ")));
}

TEST(PipelineCheck, ShowsOnlyTheNeighboursOfTheCellInALongPlan) {
  PipelinePlan plan = plan_pipeline({"gpipe", 2, 100});
  plan.steps[1][150].microbatch = 99;
  const std::string message = message_of(ErrorCode::internal, [&] { check(plan); });
  EXPECT_THAT(message, AllOf(HasSubstr("place 150"), HasSubstr(">1B99<")));
  EXPECT_LT(message.size(), 700u);
}

TEST(PipelineCheck, CountsTheMessagesThatMustBeAbleToWait) {
  const auto buffers = [](const PipelineFacts& facts) {
    return buffers_needed(plan_pipeline(facts));
  };
  EXPECT_EQ(buffers({"gpipe", 4, 8}), 0);
  EXPECT_EQ(buffers({"naive", 4, 8}), 0);
  // One stage sends a gradient while the other one sends it an activation.
  EXPECT_EQ(buffers({"1f1b", 4, 8}), 1);
  EXPECT_EQ(buffers({"1f1b", 1, 8}), 0);
  // Stage 0 sends four activations before it takes its first gradient; stage 1 takes two.
  EXPECT_EQ(buffers_needed(parse_pipeline("0F0 0F1 0F2 0F3 0B3 0B2 0B1 0B0;"
                                          "1F3 1B3 1F2 1B2 1F1 1B1 1F0 1B0")),
            3);
  for_each_pipeline(
      [](const PipelinePlan& plan) { EXPECT_LE(buffers_needed(plan), 2) << name_of(plan.facts); });
}

TEST(PipelineCheck, MarksTheStagesThatStandStillWithTooFewBuffers) {
  const PipelinePlan plan = plan_pipeline({"1f1b", 2, 3});
  check(plan, 1);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { check(plan, 0); }),
              AllOf(HasSubstr("with 0 buffers between two stages it would never end, and it "
                              "needs 1: stage 0, place 1: 0F1 sends to stage 1, and finds no "
                              "room; stage 1, place 1: 1B0 sends to stage 0, and finds no room"),
                    HasSubstr("stage 0  0F0 >0F1< 0B0"), HasSubstr("stage 1  1F0 >1B0< 1F1")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { check(plan, -1); }),
              HasSubstr("-1 buffers"));
  for_each_pipeline([](const PipelinePlan& each) { check(each, buffers_needed(each)); });
}

}  // namespace
}  // namespace trireme::plan::pipeline_check_test
