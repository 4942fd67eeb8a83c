// Ranks that draw the same random numbers are told. Threads have one default generator together.
#include <trireme/parallel/equal_draws.h>

#include "models.h"

// This header must come after those of torch.
#include <gmock/gmock.h>

namespace trireme::equal_draws_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::on_ranks;
using tests::thread_groups;

// The text on standard error after `calls` calls of look(), with `between` before each but the
// first.
std::string told(int calls, const std::function<void(int call)>& between) {
  testing::internal::CaptureStderr();
  on_ranks(thread_groups(3), [&](Group& group) {
    EqualDraws draws(at::kCPU);
    for (int call = 0; call < calls; ++call) {
      if (call > 0 && group.rank() == 0) between(call);
      group.barrier();
      draws.look(group, call + 1);
      group.barrier();
    }
  });
  return testing::internal::GetCapturedStderr();
}

TEST(EqualDraws, NamesTheRanksThatHaveDrawnTheSameBetweenTwoSteps) {
  EXPECT_THAT(told(2, [](int) { at::rand({1}); }),
              AllOf(HasSubstr("step 2: ranks 0, 1 and 2 draw the same random numbers"),
                    HasSubstr("try: torch::manual_seed(seed + world.rank())")));
}

TEST(EqualDraws, LooksAgainAfter64Steps) {
  EXPECT_THAT(told(66,
                   [](int call) {
                     if (call > 40) at::rand({1});
                   }),
              HasSubstr("step 66: ranks 0, 1 and 2"));
}

TEST(EqualDraws, SaysNothingOfGeneratorsThatDoNotMoveOrAreSeededInBetween) {
  EXPECT_THAT(told(2, [](int) {}), IsEmpty());
  EXPECT_THAT(told(2,
                   [](int call) {
                     at::manual_seed(static_cast<uint64_t>(call) + 90);
                     at::randperm(5);
                   }),
              IsEmpty());
}

}  // namespace
}  // namespace trireme::equal_draws_test
