#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/pipeline_text.h>
#include <trireme/plan/pipeline_times.h>
#include <algorithm>
#include <cmath>
#include <limits>

#include "../base/expect_error.h"
#include "pipeline_cases.h"

namespace trireme::plan::pipeline_times_test {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

PipelineTimes times_of(const PipelineFacts& facts, const PipelineCosts& costs = {}) {
  return simulate(plan_pipeline(facts), costs);
}
int most_of(const std::vector<int>& values) { return *std::ranges::max_element(values); }

TEST(PipelineTimes, HaveTheBubbleOfTheFormulaWhereThereIsOne) {
  int formulas = 0;
  for_each_pipeline([&](const PipelinePlan& plan) {
    const auto formula = bubble_by_formula(plan.facts);
    if (!formula) return;
    const PipelineTimes times = simulate(plan);
    const bool of_span = plan.facts.schedule == "zbh2" || plan.facts.schedule == "zbv";
    EXPECT_NEAR(of_span ? times.bubble_in_span : times.bubble, *formula, 1e-12)
        << name_of(plan.facts);
    ++formulas;
  });
  EXPECT_EQ(formulas, 3 * 60 + 2 * 23 + 45 + 2 * 30);
}

TEST(PipelineTimes, HaveTheBubbleOfTheFormulaForUnequalTasks) {
  PipelineCosts costs;
  costs.forward = {1.5}, costs.input_gradient = {2}, costs.weight_gradient = {1.25};
  for (const char* const schedule : {"naive", "gpipe", "1f1b", "interleaved", "zbh1"}) {
    const PipelineFacts facts = plan_pipeline({schedule, 4, 8}).facts;
    EXPECT_NEAR(times_of(facts, costs).bubble, bubble_by_formula(facts, costs).value(), 1e-12)
        << schedule;
  }
  // (K-1)/(M+K-1), as in GPipe, section 2.3; (K-1)/(C M + K-1); and (K-1)(F+I-W) idle in ZB-H1.
  EXPECT_DOUBLE_EQ(bubble_by_formula({"1f1b", 4, 8, 1}).value(), 3.0 / 11);
  EXPECT_DOUBLE_EQ(bubble_by_formula({"interleaved", 4, 8, 2}).value(), 3.0 / 19);
  EXPECT_DOUBLE_EQ(bubble_by_formula({"zbh1", 4, 8, 1}).value(), 3.0 / 27);
  EXPECT_EQ(bubble_by_formula({"interleaved", 4, 7, 2}), std::nullopt);
  EXPECT_EQ(bubble_by_formula({"zbh2", 4, 6, 1}), std::nullopt);
  EXPECT_EQ(bubble_by_formula({"text", 4, 8, 1}), std::nullopt);
  costs.forward = {1, 1, 2, 1};
  EXPECT_EQ(bubble_by_formula({"1f1b", 4, 8, 1}, costs), std::nullopt);
}

TEST(PipelineTimes, HoldAsManyActivationsAsThePapersSay) {
  // All stages of ZB-H1 hold as many as stage 0 in 1F1B. The parts of ZB-V have half the size.
  const auto expected = [](const PipelineFacts& facts, int stage) {
    const int k = facts.stages, m = facts.microbatches, c = facts.chunks;
    if (facts.schedule == "naive") return 1;
    if (facts.schedule == "gpipe") return m;
    if (facts.schedule == "1f1b") return std::min(m, k - stage);
    if (facts.schedule == "zbh1") return std::min(m, k);
    if (facts.schedule == "zbh2") return std::min(m, 2 * k - 1);
    if (facts.schedule == "zbv") return std::min(2 * m, 2 * k);
    return std::min(m * c, (c - 1) * k + 2 * (k - 1 - stage) + 1);
  };
  for_each_pipeline([&](const PipelinePlan& plan) {
    const PipelineFacts& facts = plan.facts;
    const std::vector<int> peaks = simulate(plan).peak_microbatches;
    const bool is_whole = facts.microbatches % facts.stages == 0 &&
                          (facts.schedule != "zbv" || facts.microbatches >= 2 * facts.stages);
    for (int stage = 0; stage < facts.stages; ++stage) {
      const int peak = peaks[static_cast<size_t>(stage)];
      EXPECT_LE(peak, expected(facts, stage)) << name_of(facts);
      if (facts.chunks == 1 || is_whole) {
        EXPECT_EQ(peak, expected(facts, stage)) << name_of(facts);
      }
    }
  });
}

TEST(PipelineTimes, AreNeverLongerThanThoseOfOneForwardOneBackward) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int microbatches = 1; microbatches <= 10; ++microbatches) {
      const PipelineTimes base = times_of({"1f1b", stages, microbatches});
      EXPECT_LE(times_of({"1f1b", stages, microbatches}).total,
                times_of({"gpipe", stages, microbatches}).total);
      const PipelineTimes h1 = times_of({"zbh1", stages, microbatches});
      EXPECT_LE(h1.bubble, base.bubble + 1e-12) << stages << " " << microbatches;
      EXPECT_LE(most_of(h1.peak_microbatches), most_of(base.peak_microbatches));
      const PipelineTimes h2 = times_of({"zbh2", stages, microbatches});
      EXPECT_LE(h2.bubble_in_span, h1.bubble_in_span + 1e-12) << stages << " " << microbatches;
      // Parts of half the size.
      const PipelineTimes v = times_of({"zbv", stages, microbatches});
      EXPECT_LE(v.total, 2 * h1.total) << stages << " " << microbatches;
      EXPECT_LE(most_of(v.peak_microbatches), 2 * most_of(base.peak_microbatches));
      for (const int chunks : {2, 3})
        EXPECT_LE(times_of({"interleaved", stages, microbatches, chunks}).total,
                  chunks * base.total)
            << stages << " " << microbatches << " " << chunks;
    }
  }
}

TEST(PipelineTimes, StartEachStepAsSoonAsItsMessageAndItsStageAreThere) {
  PipelineCosts costs;
  costs.forward = {1, 2}, costs.input_gradient = {1, 3}, costs.weight_gradient = {2};
  costs.transfer = 0.5;
  const PipelineTimes times =
      simulate(parse_pipeline("0F0 0F1 0B0 0B1; 1F0 1B0 1F1 1I1 1W1"), costs);
  const auto starts = [&](size_t stage) {
    std::vector<double> found;
    for (const PipelineTime& time : times.steps[stage]) found.push_back(time.start);
    return found;
  };
  EXPECT_THAT(starts(1), ElementsAre(1.5, 3.5, 8.5, 10.5, 13.5));
  EXPECT_THAT(starts(0), ElementsAre(0, 1, 9, 14));
  EXPECT_EQ(times.total, 17);
  EXPECT_EQ(times.span, 17);
  EXPECT_THAT(times.busy, ElementsAre(8, 14));
  EXPECT_DOUBLE_EQ(times.bubble, 1 - 11.0 / 17);
  // Recomputation adds the forward to B and to I, and not to W.
  costs.recompute = true;
  EXPECT_EQ(costs.of({PipelineTask::backward, 0, 1}), 7);
  EXPECT_EQ(costs.of({PipelineTask::input_gradient, 0, 1}), 5);
  EXPECT_EQ(costs.of({PipelineTask::weight_gradient, 0, 1}), 2);
}

TEST(PipelineTimes, DoNotCountTheWaitForOthersInASpan) {
  // Stage 1 starts later and ends later. The next batch can begin on stage 0 meanwhile.
  const PipelineTimes times = simulate(parse_pipeline("0F0 0I0 0W0; 1F0 1I0 1W0"));
  EXPECT_EQ(times.total, 5);
  EXPECT_EQ(times.span, 5);
  const PipelineTimes h2 = times_of({"zbh2", 4, 8});
  EXPECT_EQ(h2.total, 27);
  EXPECT_EQ(h2.span, 24);
  EXPECT_EQ(h2.bubble_in_span, 0);
}

TEST(PipelineTimes, WeighActivationsByBytesAndByWhatTheGradientOfTheInputFrees) {
  PipelineCosts costs;
  costs.activation_bytes = {100, 40};
  costs.held_after_input_gradient = 0.25;
  // Stage 1 holds F0 with 40; after I0 10 are left, beside the 40 of F1.
  const PipelinePlan plan = parse_pipeline("0F0 0F1 0B0 0B1; 1F0 1I0 1F1 1I1 1W0 1W1");
  const PipelineTimes times = simulate(plan, costs);
  EXPECT_THAT(times.peak_microbatches, ElementsAre(2, 2));
  EXPECT_THAT(times.peak_bytes, ElementsAre(200, 50));
  // In ZB-H1 fewer bytes are held then than the count says.
  costs.activation_bytes = {1};
  EXPECT_THAT(times_of({"zbh1", 4, 8}, costs).peak_bytes, ElementsAre(4, 3.25, 2.5, 1.75));
}

TEST(PipelineTimes, RefuseCostsThatFitNoPart) {
  const auto refused = [](const std::function<void(PipelineCosts&)>& change) {
    PipelineCosts costs;
    change(costs);
    return message_of(ErrorCode::invalid_argument, [&] { times_of({"1f1b", 3, 2}, costs); });
  };
  EXPECT_THAT(refused([](auto& costs) { costs.forward = {1, 2}; }),
              HasSubstr("forward has 2 values for 3 parts"));
  EXPECT_THAT(refused([](auto& costs) { costs.activation_bytes = {}; }),
              HasSubstr("activation_bytes has 0 values"));
  EXPECT_THAT(refused([](auto& costs) { costs.weight_gradient = {1, -2, 1}; }),
              HasSubstr("weight_gradient is -2"));
  EXPECT_THAT(refused([](auto& costs) { costs.transfer = std::nan(""); }),
              HasSubstr("transfer is nan"));
  EXPECT_THAT(refused([](auto& costs) { costs.held_after_input_gradient = 1.5; }),
              HasSubstr("held_after_input_gradient is 1.5"));
}

TEST(PipelineTimes, ReadCostsFromText) {
  const PipelineCosts costs =
      parse_pipeline_costs(" F=1,2.5 I=3\tW=4,5 transfer=1e-3 bytes=4e6 held=0.5 recompute ");
  EXPECT_THAT(costs.forward, ElementsAre(1, 2.5));
  EXPECT_THAT(costs.input_gradient, ElementsAre(3));
  EXPECT_THAT(costs.weight_gradient, ElementsAre(4, 5));
  EXPECT_THAT(costs.activation_bytes, ElementsAre(4e6));
  EXPECT_EQ(costs.transfer, 1e-3);
  EXPECT_EQ(costs.held_after_input_gradient, 0.5);
  EXPECT_TRUE(costs.recompute);
  EXPECT_THAT(parse_pipeline_costs("B=3").weight_gradient, ElementsAre(1.5));
  const auto refused = [](const char* text) {
    return message_of(ErrorCode::invalid_argument, [&] { parse_pipeline_costs(text); });
  };
  EXPECT_THAT(refused("F=1 X=2"), HasSubstr("'X=2' names no cost"));
  EXPECT_THAT(refused("F=1,,2"), HasSubstr("'F=1,,2' has '' in place of a number"));
  EXPECT_THAT(refused("F="), HasSubstr("in place of a number"));
  EXPECT_THAT(refused("transfer=1,2"), HasSubstr("more than one value"));
  EXPECT_THAT(refused("fast"), HasSubstr("'fast' has no value"));
}

}  // namespace
}  // namespace trireme::plan::pipeline_times_test
