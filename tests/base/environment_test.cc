#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/environment.h>
#include <cstdlib>

#include "expect_error.h"

namespace trireme::environment_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Environment, ReturnsItsVariablesAndNoOthers) {
  const Environment environment({{"RANK", "3"}, {"EMPTY", ""}});
  EXPECT_EQ(environment.get("RANK"), "3");
  EXPECT_EQ(environment.get("EMPTY"), "");
  EXPECT_EQ(environment.get("WORLD_SIZE"), std::nullopt);
  EXPECT_EQ(Environment().get("PATH"), std::nullopt);
}

TEST(Environment, ReadsWholeNumbers) {
  const Environment environment({{"RANK", "3"}, {"OFFSET", "-7"}});
  EXPECT_EQ(environment.get_int("RANK"), 3);
  EXPECT_EQ(environment.get_int("OFFSET"), -7);
  EXPECT_EQ(environment.get_int("WORLD_SIZE"), std::nullopt);
}

TEST(Environment, NamesAVariableThatIsNotANumber) {
  for (const char* text : {"three", "3x", "", " 3", "1.5", "99999999999"}) {
    const Environment environment(std::map<std::string, std::string>{{"RANK", text}});
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { environment.get_int("RANK"); }),
                AllOf(HasSubstr("RANK='" + std::string(text) + "'"), HasSubstr("; try: ")));
  }
}

TEST(Environment, OfTheProcessIsACopy) {
  ::setenv("TRIREME_TEST_VARIABLE", "a=b", 1);
  const Environment environment = Environment::of_process();
  ::unsetenv("TRIREME_TEST_VARIABLE");
  EXPECT_EQ(environment.get("TRIREME_TEST_VARIABLE"), "a=b");
  EXPECT_EQ(Environment::of_process().get("TRIREME_TEST_VARIABLE"), std::nullopt);
}

}  // namespace
}  // namespace trireme::environment_test
