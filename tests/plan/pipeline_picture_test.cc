#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/pipeline_picture.h>
#include <set>

#include "../base/expect_error.h"
#include "pipeline_cases.h"

namespace trireme::plan::pipeline_picture_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(PipelinePicture, ShowsStagesDownAndTimeAcross) {
  EXPECT_THAT(plan_pipeline({"1f1b", 3, 4}).describe(),
              StartsWith("pipeline schedule 1f1b: 3 stages, 4 micro-batches, one part on each "
                         "stage\n\n"
                         "time    | 0              5              10             15\n"
                         "stage 0 | F0 F1 F2 .  .  .  .  B0--- F3 B1--- .  B2--- .  B3---\n"
                         "stage 1 | .  F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3--- .  .\n"
                         "stage 2 | .  .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .  .  .\n"));
  EXPECT_THAT(plan_pipeline({"zbv", 2, 1}).describe(),
              HasSubstr("stage 0 | 0F0 .   .   3F0 3I0 3W0 .   .   0I0 0W0\n"
                        "stage 1 | .   1F0 2F0 .   .   2I0 2W0 1I0 1W0 .\n"));
}

TEST(PipelinePicture, GivesTheFiguresOfThePlan) {
  EXPECT_THAT(plan_pipeline({"1f1b", 3, 4}).describe(),
              AllOf(HasSubstr("time 18, bubble 33.3 % (formula: 33.3 %)\n"),
                    HasSubstr("only when more than 1 of a pair's messages wait\n"),
                    HasSubstr("0      0           66.7 %  4              3\n"),
                    HasSubstr("1      1           66.7 %  8              2\n")));
  EXPECT_THAT(plan_pipeline({"zbh2", 3, 8}).describe(),
              AllOf(HasSubstr("time 26, bubble 7.7 %\n"),
                    HasSubstr("between batches: time 24, bubble 0.0 % (formula: 0.0 %)\n")));
  PipelineCosts costs;
  costs.activation_bytes = {1000, 500, 250};
  EXPECT_THAT(
      describe(plan_pipeline({"1f1b", 3, 4}), costs),
      AllOf(HasSubstr(", and in bytes\n"), HasSubstr("  3, 3000\n"), HasSubstr("  2, 1000\n")));
}

TEST(PipelinePicture, StretchesStepsByTheirCosts) {
  PipelineCosts costs;
  costs.forward = {0.5, 1};
  costs.input_gradient = costs.weight_gradient = {0.5};
  EXPECT_THAT(describe(plan_pipeline({"gpipe", 2, 2}), costs),
              HasSubstr("time    | 0              2.5            5\n"
                        "stage 0 | F0 F1 .  .  .  .  .  B1--- B0---\n"
                        "stage 1 | .  F0--- F1--- B1--- B0--- .  .\n"));
}

TEST(PipelinePicture, FitsATerminalForEverySize) {
  const auto check_lines = [](const PipelinePlan& plan) {
    std::string line;
    for (const char letter : plan.describe()) {
      if (letter != '\n') {
        line += letter;
        continue;
      }
      EXPECT_LE(line.size(), 110u) << line;
      EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
      line.clear();
    }
  };
  for_each_pipeline(check_lines);
  check_lines(plan_pipeline({"1f1b", 12, 2000}));
  EXPECT_THAT(plan_pipeline({"1f1b", 12, 2000}).describe(), HasSubstr("more than this picture"));
}

TEST(PipelinePicture, DrawsACellWithItsMicrobatchForEachStep) {
  for_each_pipeline([](const PipelinePlan& plan) {
    const std::string svg = draw_svg(plan);
    size_t steps = 0;
    for (const auto& own : plan.steps) steps += own.size();
    EXPECT_EQ(count_of(svg, "<g><title>"), steps) << name_of(plan.facts);
    EXPECT_EQ(count_of(svg, "text-anchor=\"middle\""), steps) << name_of(plan.facts);
    EXPECT_EQ(count_of(svg, "<text "), count_of(svg, "</text>"));
    EXPECT_EQ(svg, draw_svg(plan));
  });
}

TEST(PipelinePicture, ExplainsItselfInTheDrawing) {
  const std::string svg = draw_svg(plan_pipeline({"zbv", 4, 8}));
  EXPECT_THAT(svg, AllOf(HasSubstr("role=\"img\""),
                         HasSubstr("<title id=\"name\">zbv: 4 stages, "
                                   "8 micro-batches, 2 parts of the "
                                   "model on each stage</title>"),
                         HasSubstr("gradient of the input of part 7, micro-batch 0, from 8 to 9"),
                         HasSubstr("Bubble: 5.9 % of the time (0.0 % if no stage waits for the "
                                   "others between batches)."),
                         HasSubstr("Activations at most: 8 micro-batches of a part on each "
                                   "stage.")));
  EXPECT_THAT(svg, AllOf(HasSubstr(">gradient of the weights</text>"), HasSubstr("later parts"),
                         Not(HasSubstr(">backward</text>"))));
  EXPECT_THAT(draw_svg(plan_pipeline({"1f1b", 3, 4})),
              AllOf(HasSubstr(">backward</text>"),
                    HasSubstr("3, 2, 1 micro-batches on stages 0 to "
                              "2."),
                    Not(HasSubstr("gradient")), Not(HasSubstr("later parts"))));
}

TEST(PipelinePicture, TellsTasksAndPartsApartByColour) {
  // The fill of the first cell with this title.
  const auto colour = [](const std::string& svg, const std::string& title) {
    const size_t fill = svg.find("fill=\"", svg.find("<g><title>" + title));
    return svg.substr(fill + 6, 7);
  };
  const std::string svg = draw_svg(plan_pipeline({"zbv", 2, 4}));
  std::set<std::string> colours;
  for (const char* const task : {"forward", "gradient of the input", "gradient of the weights"})
    for (const char* const part : {"0", "3"})
      colours.insert(colour(svg, std::string(task) + " of part " + part));
  EXPECT_EQ(colours.size(), 6u);
}

TEST(PipelinePicture, RefusesToDrawMoreThanABrowserShows) {
  EXPECT_THAT(
      message_of(ErrorCode::unsupported, [] { draw_svg(plan_pipeline({"1f1b", 12, 1000})); }),
      HasSubstr("24000 steps"));
}

}  // namespace
}  // namespace trireme::plan::pipeline_picture_test
