// Threads as ranks: a rank calls something else, or nothing.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "ranks.h"

namespace trireme::thread_group_failure_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::Ending;
using tests::endings_of;

constexpr Milliseconds kShort{200};
constexpr Milliseconds kLong{60000};

std::chrono::milliseconds time_of(const std::function<void()>& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               start);
}

class ThreadGroupFailure : public ::testing::TestWithParam<plan::Algorithm> {
 protected:
  tests::Groups groups(int size, Milliseconds timeout = kLong) {
    return tests::thread_groups(size, GetParam(), timeout);
  }
};

TEST_P(ThreadGroupFailure, AnotherCollectiveIsNamedOnEveryRank) {
  const auto endings = endings_of(groups(3), [](Group& group) {
    const at::Tensor tensor = at::ones({10});
    if (group.rank() == 1)
      group.broadcast(tensor, 0);
    else
      group.all_reduce(tensor);
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(to_string(ending.code), to_string(ErrorCode::invalid_argument));
    EXPECT_THAT(ending.what,
                AllOf(HasSubstr("rank 1 calls broadcast"), HasSubstr("calls all_reduce")));
  }
}

TEST_P(ThreadGroupFailure, AnotherSizeTypeOrOperationIsNamedOnEveryRank) {
  const std::vector<std::function<void(Group&)>> differences{
      [](Group& group) { group.all_reduce(at::ones({group.rank() == 2 ? 11 : 10})); },
      [](Group& group) {
        group.all_reduce(at::ones({10}, group.rank() == 2 ? at::kDouble : at::kFloat));
      },
      [](Group& group) {
        group.all_reduce(at::ones({10}), group.rank() == 2 ? ReduceOp::max : ReduceOp::min);
      },
      [](Group& group) { group.broadcast(at::ones({10}), group.rank() == 2 ? 1 : 0); },
      [](Group& group) {
        const int64_t elements = group.rank() == 2 ? 12 : 9;
        group.all_to_all(at::ones({elements}), at::ones({elements}));
      },
  };
  for (const auto& call : differences) {
    for (const Ending& ending : endings_of(groups(3), call)) {
      EXPECT_EQ(to_string(ending.code), to_string(ErrorCode::invalid_argument));
      EXPECT_THAT(ending.what, HasSubstr("rank 2 calls"));
    }
  }
}

TEST_P(ThreadGroupFailure, TheMessageOfADifferenceUsesThePublicNames) {
  const auto endings = endings_of(groups(2), [](Group& group) {
    group.all_reduce(at::ones({10}, group.rank() == 1 ? at::kDouble : at::kFloat),
                     group.rank() == 1 ? ReduceOp::max : ReduceOp::min);
  });
  EXPECT_THAT(endings[0].what,
              AllOf(HasSubstr("Float"), HasSubstr("Double"), HasSubstr("min"), HasSubstr("max")));
}

TEST_P(ThreadGroupFailure, AMissingRankIsNamedWithinTheDeadline) {
  std::vector<Ending> endings;
  const auto took = time_of([&] {
    endings = endings_of(groups(3, kShort), [](Group& group) {
      if (group.rank() != 2) group.all_reduce(at::ones({10}));
    });
  });
  EXPECT_GE(took, kShort);
  EXPECT_LT(took, kShort + Milliseconds(3000));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(to_string(endings[static_cast<size_t>(rank)].code), to_string(ErrorCode::timeout));
    EXPECT_THAT(endings[static_cast<size_t>(rank)].what,
                AllOf(HasSubstr("all_reduce"), HasSubstr("rank 2")));
  }
}

// The ranks that gave up have freed their tensors, so a late rank must not read them.
TEST_P(ThreadGroupFailure, ARankThatArrivesAfterTheDeadlineGetsTheSameError) {
  const auto ranks = groups(2, kShort);
  const auto endings =
      endings_of({ranks[0]}, [](Group& group) { group.all_reduce(at::ones({10})); });
  EXPECT_EQ(to_string(endings[0].code), to_string(ErrorCode::timeout));
  std::vector<Ending> late;
  const auto took = time_of([&] {
    late = endings_of({ranks[1]}, [](Group& group) { group.all_reduce(at::ones({10})); });
  });
  EXPECT_LT(took, kShort) << "it waited again";
  EXPECT_EQ(to_string(late[0].code), to_string(ErrorCode::timeout));
  EXPECT_THAT(late[0].what, HasSubstr("for rank 1 to arrive"));
}

TEST_P(ThreadGroupFailure, WaitingForAMissingMessageEndsInTimeout) {
  const auto endings = endings_of(groups(2, kShort), [](Group& group) {
    if (group.rank() == 0) group.recv(at::ones({4}), 1, 9);
  });
  EXPECT_EQ(to_string(endings[0].code), to_string(ErrorCode::timeout));
  EXPECT_THAT(endings[0].what, AllOf(HasSubstr("rank 1"), HasSubstr("tag 9")));
}

TEST_P(ThreadGroupFailure, AbortWakesEveryWait) {
  std::vector<Ending> endings;
  const auto took = time_of([&] {
    endings = endings_of(groups(4), [](Group& group) {
      if (group.rank() == 0) group.all_reduce(at::ones({10}));
      if (group.rank() == 1) group.barrier();
      if (group.rank() == 2) group.recv(at::ones({4}), 0);
      if (group.rank() == 3) group.abort("no space left");
    });
  });
  EXPECT_LT(took, Milliseconds(10000));
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(to_string(endings[static_cast<size_t>(rank)].code), to_string(ErrorCode::aborted))
        << rank;
    EXPECT_THAT(endings[static_cast<size_t>(rank)].what,
                HasSubstr("rank 3 gave up: no space left"));
  }
}

TEST_P(ThreadGroupFailure, NoOperationStartsAfterAnAbortAndTheFirstReasonStays) {
  const auto ranks = groups(2);
  ranks[1]->abort("first");
  ranks[0]->abort("second");
  for (const auto& call : std::vector<std::function<void(Group&)>>{
           [](Group& group) { group.all_reduce(at::ones({3})); },
           [](Group& group) { group.barrier(); },
           [](Group& group) { group.send(at::ones({3}), 1 - group.rank()); },
           [](Group& group) { group.recv(at::ones({3}), 1 - group.rank()); },
       })
    for (const Ending& ending : endings_of(ranks, call))
      EXPECT_THAT(ending.what, HasSubstr("first"));
}

// A rank may give up at any moment, even while others read its tensor.
TEST_P(ThreadGroupFailure, AbortInTheMiddleOfCollectivesHarmsNoOtherRank) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    const auto ranks = groups(3);
    std::atomic<bool> started{false};
    std::thread aborter([&] {
      while (!started) std::this_thread::yield();
      ranks[2]->abort("enough");
    });
    const auto endings = endings_of(ranks, [&](Group& group) {
      for (;;) {
        group.all_reduce(at::ones({2000 + attempt}));
        started = true;
      }
    });
    aborter.join();
    for (const Ending& ending : endings)
      EXPECT_EQ(to_string(ending.code), to_string(ErrorCode::aborted));
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ThreadGroupFailure,
                         ::testing::ValuesIn(plan::all_algorithms().begin(),
                                             plan::all_algorithms().end()),
                         [](const auto& each) {
                           return std::string(plan::to_string(each.param));
                         });

}  // namespace
}  // namespace trireme::thread_group_failure_test
