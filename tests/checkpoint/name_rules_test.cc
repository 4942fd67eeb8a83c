// Rules for the names of tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/checkpoint/name_rules.h>

#include "../base/expect_error.h"

namespace trireme::checkpoint::name_rules_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kNames = {"module.conv.weight", "module.fc.weight", "step"};

std::string refusal_of(const NameRules& rules) {
  return message_of(ErrorCode::invalid_argument, [&] { renamed(rules, kNames); });
}

TEST(NameRules, WithoutRulesNamesStay) {
  EXPECT_THAT(renamed({}, kNames), ElementsAre("module.conv.weight", "module.fc.weight", "step"));
}

TEST(NameRules, AreAppliedInOrderToWhatWasNotDropped) {
  EXPECT_THAT(
      renamed({.rename = {{"^module\\.", ""}, {"^fc\\.(.*)$", "head.$1"}}, .drop = {"^step$"}},
              kNames),
      ElementsAre("conv.weight", "head.weight", std::nullopt));
}

TEST(NameRules, ThatDoNothingOrCollideAreNamed) {
  EXPECT_THAT(refusal_of({.rename = {{"^modul$", "x"}}}),
              HasSubstr("'^modul$' renames no tensor"));
  EXPECT_THAT(refusal_of({.drop = {"absent"}}), HasSubstr("'absent' drops no tensor"));
  EXPECT_THAT(refusal_of({.rename = {{"step", "x"}}, .drop = {"step"}}),
              HasSubstr("'step' renames no tensor"));
  EXPECT_THAT(refusal_of({.drop = {"("}}), HasSubstr("'(' is no regular expression"));
  EXPECT_THAT(refusal_of({.rename = {{".*weight", "w"}}}),
              HasSubstr("'module.conv.weight' and 'module.fc.weight' one name: 'w'"));
  EXPECT_THAT(refusal_of({.rename = {{"^step$", ""}}}), HasSubstr("no name for 'step'"));
}

TEST(NameRules, AreReadFromTheCommandLine) {
  EXPECT_EQ(read_rename("--rename", "^a\\.=b."),
            (std::pair<std::string, std::string>("^a\\.", "b.")));
  EXPECT_EQ(read_rename("--rename", "^a=").second, "");
  for (const char* const text : {"a", "=b", ""})
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { read_rename("--rename", text); }),
                HasSubstr("REGEX=REPLACEMENT"));
}

}  // namespace
}  // namespace trireme::checkpoint::name_rules_test
