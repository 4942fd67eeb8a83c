#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/watch/phase.h>

namespace trireme::phase_test {
namespace {

TEST(Phase, IsReadBackFromItsName) {
  for (int i = 0; i <= static_cast<int>(Phase::leaving); ++i) {
    const Phase phase = static_cast<Phase>(i);
    EXPECT_EQ(phase_from_string(to_string(phase)), phase);
  }
  EXPECT_EQ(to_string(Phase::starting), "starting");
  EXPECT_EQ(to_string(Phase::leaving), "leaving");
}

TEST(Phase, AnUnknownNameIsAnError) { EXPECT_THROW(phase_from_string("dreaming"), Error); }

TEST(Phase, IsDescribedWithItsStepOnceThereIsOne) {
  EXPECT_EQ((PhaseAt{Phase::backward, 40}.describe()), "backward of step 40");
  EXPECT_EQ(PhaseAt{}.describe(), "starting");
}

}  // namespace
}  // namespace trireme::phase_test
