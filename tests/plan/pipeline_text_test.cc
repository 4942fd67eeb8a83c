#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/pipeline_text.h>

#include "../base/expect_error.h"
#include "pipeline_cases.h"

namespace trireme::plan::pipeline_text_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refused(const std::string& text) {
  return message_of(ErrorCode::invalid_argument, [&] { parse_pipeline(text); });
}

TEST(PipelineText, ReadsWhatAPlanWrites) {
  for_each_pipeline([](const PipelinePlan& plan) {
    const PipelinePlan read = parse_pipeline(plan.to_text());
    EXPECT_EQ(read.steps, plan.steps);
    EXPECT_EQ(read.facts.schedule, "text");
    EXPECT_EQ(read.facts.stages, plan.facts.stages);
    EXPECT_EQ(read.facts.microbatches, plan.facts.microbatches);
    EXPECT_EQ(read.facts.chunks, plan.facts.chunks);
    for (int part = 0; part < plan.parts(); ++part)
      EXPECT_EQ(read.stage_of(part), plan.stage_of(part)) << name_of(plan.facts);
  });
}

TEST(PipelineText, AllowsCommentsEmptyLinesAndSemicolons) {
  const auto steps = plan_pipeline({"gpipe", 2, 2}).steps;
  EXPECT_EQ(parse_pipeline("0F0 0F1 0B1 0B0; 1F0 1F1 1B1 1B0").steps, steps);
  EXPECT_EQ(parse_pipeline("# Two stages; two micro-batches.\n\n  0F0\t0F1 0B1 0B0  # first\r\n"
                           "1F0 1F1 1B1 1B0\n\n")
                .steps,
            steps);
}

TEST(PipelineText, NamesLineWordAndWhatIsExpected) {
  EXPECT_THAT(refused("0F0 0B0\n\n1F0 1X0"),
              AllOf(HasSubstr("line 3 (stage 1), word 2: '1X0' has the letter 'X'"),
                    HasSubstr("part, letter and micro-batch, such as 0F3")));
  EXPECT_THAT(refused("F0"), HasSubstr("line 1 (stage 0), word 1: 'F0' does not begin with"));
  EXPECT_THAT(refused("0F0 0B"), HasSubstr("'0B' does not end with the number of a micro-batch"));
  EXPECT_THAT(refused("0F0 0B1x"), HasSubstr("'0B1x' does not end with"));
  EXPECT_THAT(refused("0F-1"), HasSubstr("'0F-1' does not end with"));
  EXPECT_THAT(refused("12"), HasSubstr("'12' has no letter"));
  EXPECT_THAT(refused("0f0"), HasSubstr("the letter 'f'"));
  EXPECT_THAT(refused("0F99999999999999"), HasSubstr("micro-batch above 999999"));
  EXPECT_THAT(refused("1000000F0"), HasSubstr("part above 999999"));
  EXPECT_THAT(refused(""), HasSubstr("no steps"));
  EXPECT_THAT(refused("# nothing\n ; \n"), HasSubstr("no steps"));
}

TEST(PipelineText, RefusesPartsThatStandOnNoFold) {
  EXPECT_THAT(refused("1F0 1B0; 0F0 0B0"), HasSubstr("stage 0: 1F0 stands on the wrong line"));
  EXPECT_THAT(refused("0F0 0B0; 1F0 1B0; 2F0 2B0 3F0 3B0"),
              HasSubstr("4 parts on 3 stages (lines)"));
  EXPECT_THAT(refused("0F0 3F0 2F0; 1F0"), HasSubstr("stands on the wrong line"));
}

TEST(PipelineText, ShowsAMissingStepAsTheUsersMistake) {
  EXPECT_THAT(refused("0F0 0F1 0B0\n1F0 1B0 1F1 1B1"),
              AllOf(HasSubstr("pipeline plan 'text'"), HasSubstr("stage 0 never runs 0B1"),
                    HasSubstr("\nstage 0  0F0  0F1  0B0 > ? <\n"), HasSubstr("stage 1  1F0")));
  EXPECT_THAT(refused("0F0 0W0 0I0"), HasSubstr("0W0 waits for 0I0, which stage 0 runs later"));
}

}  // namespace
}  // namespace trireme::plan::pipeline_text_test
