// Keys of a programme's own. They stay in the table of a process, so each test has one of its own.
#include <gmock/gmock.h>

#include <trireme/config/print.h>
#include <trireme/run/config.h>
#include <trireme/run/own_options.h>
#include <cstdlib>
#include <iostream>

#include "../base/expect_error.h"

namespace trireme::own_options_test {

struct Mine {
  double alpha = 0.5;
  std::string note;
};
config::Rows rows_of(const Mine*) {
  return config::all_of<Mine>(
      {config::row(&Mine::alpha,
                   {.name = "my.alpha", .meaning = "A fraction.", .range = config::from_to(0, 1)}),
       config::row(&Mine::note, {.name = "my.note", .meaning = "A text.", .agreed = false})});
}

namespace {

using testing::HasSubstr;
using testing::IsSupersetOf;

// Ends the process with 0 if nothing has failed in it, and says on standard error what has.
void end_after(void (*test)()) {
  test();
  const testing::TestResult& result =
      *testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int part = 0; part < result.total_part_count(); ++part)
    std::cerr << result.GetTestPartResult(part).message() << "\n";
  std::exit(testing::Test::HasFailure() ? 1 : 0);
}
// The process starts anew, so that it has no table yet.
void expect_in_own_process(void (*test)()) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end_after(test), testing::ExitedWithCode(0), "");
}

std::string refusal(const std::vector<std::string>& set) {
  return message_of(ErrorCode::invalid_argument, [&] { load_config({{}, set, {}}); });
}

TEST(OwnOptions, AreReadCheckedListedAndCompared) {
  expect_in_own_process([] {
    register_options<Mine>();
    const Config config = load_config({{}, {"my.alpha=0.25", "my.note=a"}, {}});
    EXPECT_EQ(config.own.get<Mine>().alpha, 0.25);
    EXPECT_EQ(Config().own.get<Mine>().alpha, 0.5);
    EXPECT_THAT(refusal({"my.alpha=2"}), HasSubstr("my.alpha is \"2\"; expected: number, 0 to 1"));
    EXPECT_THAT(refusal({"my.alfa=1"}), HasSubstr("try: my.alpha"));
    EXPECT_THAT(config::describe(table_of_config()), HasSubstr("| my.alpha "));
    EXPECT_THAT(to_settings(config), IsSupersetOf({"my.alpha=0.25", "my.note=a"}));
    EXPECT_EQ(keys_to_agree(config).at("my.alpha"), "0.25");
    EXPECT_FALSE(keys_to_agree(config).contains("my.note"));
  });
}

TEST(OwnOptions, AreRefusedTooLateOrTwice) {
  expect_in_own_process([] {
    const auto message = [] {
      return message_of(ErrorCode::invalid_argument, [] { register_options<Mine>(); });
    };
    const Config early;
    register_options<Mine>();
    EXPECT_THAT(message(), HasSubstr("registered twice"));
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { early.own.get<Mine>(); }),
                HasSubstr("not registered when the configuration was made"));
    table_of_config();
    EXPECT_THAT(message(), HasSubstr("after a configuration was read"));
  });
}

TEST(OwnOptions, CannotHaveAKeyThatExists) {
  expect_in_own_process([] {
    config::Rows rows{{.name = "data.batch", .meaning = "Taken."}};
    add_own_options(typeid(int), 0, std::move(rows));
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { table_of_config(); }),
                HasSubstr("data.batch already exists"));
  });
}

}  // namespace
}  // namespace trireme::own_options_test
