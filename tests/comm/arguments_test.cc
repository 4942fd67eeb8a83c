// The arguments that a group refuses before anything is sent.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "../base/expect_error.h"
#include "ranks.h"

namespace trireme::arguments_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GroupArguments : public ::testing::Test {
 protected:
  Group& group() { return *groups_[0]; }
  template <typename Action>
  std::string refusal(Action action) {
    return message_of(ErrorCode::invalid_argument, action);
  }
  tests::Groups groups_ = tests::thread_groups(2);
  const at::Tensor good_ = at::ones({4});
};

TEST_F(GroupArguments, NamesATensorThatIsNotContiguous) {
  EXPECT_THAT(refusal([&] { group().all_reduce(at::ones({4, 2}).t()); }),
              AllOf(HasSubstr("all_reduce"), HasSubstr("contiguous")));
}

TEST_F(GroupArguments, NamesATypeThatItDoesNotSupport) {
  EXPECT_THAT(refusal([&] { group().broadcast(at::ones({4}, at::kBool), 0); }),
              AllOf(HasSubstr("Bool"), HasSubstr("float32, float64")));
  EXPECT_THAT(refusal([&] { group().all_reduce(at::ones({4}, at::kShort)); }), HasSubstr("Short"));
}

TEST_F(GroupArguments, NamesAnUndefinedTensor) {
  EXPECT_THAT(refusal([&] { group().all_reduce(at::Tensor()); }), HasSubstr("undefined"));
  EXPECT_THAT(refusal([&] { group().gather(good_, at::Tensor(), 0); }), HasSubstr("undefined"))
      << "the root needs an output";
}

TEST_F(GroupArguments, NamesATensorOnAnotherDevice) {
  EXPECT_THAT(refusal([&] { group().all_reduce(at::ones({4}, at::kMeta)); }), HasSubstr("meta"));
}

TEST_F(GroupArguments, RefusesAMeanOfIntegers) {
  EXPECT_THAT(refusal([&] { group().all_reduce(at::ones({4}, at::kInt), ReduceOp::mean); }),
              HasSubstr("mean of integers"));
  EXPECT_THAT(refusal([&] {
                group().reduce_scatter(at::ones({4}, at::kLong), at::ones({2}, at::kLong),
                                       ReduceOp::mean);
              }),
              HasSubstr("mean of integers"));
}

TEST_F(GroupArguments, NamesBlocksOfAnAllToAllThatDoNotFit) {
  const at::Tensor other = at::ones({4});
  EXPECT_THAT(refusal([&] { group().all_to_all(at::ones({5}), at::ones({5})); }),
              AllOf(HasSubstr("5 and 5 elements"), HasSubstr("2 blocks")));
  EXPECT_THAT(refusal([&] { group().all_to_all(good_, at::ones({6})); }), HasSubstr("4 and 6"));
  EXPECT_THAT(refusal([&] { group().all_to_all(good_, at::ones({4}, at::kInt)); }),
              AllOf(HasSubstr("Float"), HasSubstr("Int")));
  EXPECT_THAT(refusal([&] { group().all_to_all(good_, good_); }), HasSubstr("overlap"));
  EXPECT_THAT(refusal([&] { group().all_to_all(good_, other, {4}, {2, 2}); }),
              AllOf(HasSubstr("'sent' has 1 lengths"), HasSubstr("2 ranks")));
  EXPECT_THAT(refusal([&] { group().all_to_all(good_, other, {2, 2}, {-1, 5}); }),
              HasSubstr("'received' has the length -1"));
  EXPECT_THAT(refusal([&] { group().all_to_all(good_, other, {2, 3}, {2, 2}); }),
              AllOf(HasSubstr("'sent' adds up to 5"), HasSubstr("input has 4")));
}

TEST_F(GroupArguments, NamesARankOutsideTheGroup) {
  EXPECT_THAT(refusal([&] { group().broadcast(good_, 2); }),
              AllOf(HasSubstr("root 2"), HasSubstr("0..1")));
  EXPECT_THAT(refusal([&] { group().broadcast(good_, -1); }), HasSubstr("root -1"));
  EXPECT_THAT(refusal([&] { group().gather(good_, good_, 7); }), HasSubstr("root 7"));
  EXPECT_THAT(refusal([&] { group().send(good_, 2); }), HasSubstr("receiver 2"));
  EXPECT_THAT(refusal([&] { group().recv(good_, -3); }), HasSubstr("sender -3"));
}

TEST_F(GroupArguments, RefusesAMessageToItself) {
  EXPECT_THAT(refusal([&] { group().send(good_, 0); }), HasSubstr("itself"));
  EXPECT_THAT(refusal([&] { group().recv(good_, 0); }), HasSubstr("itself"));
}

TEST_F(GroupArguments, NamesATagOutOfRange) {
  EXPECT_THAT(refusal([&] { group().send(good_, 1, 256); }),
              AllOf(HasSubstr("tag 256"), HasSubstr("0..255")));
  EXPECT_THAT(refusal([&] { group().recv(good_, 1, -1); }), HasSubstr("tag -1"));
}

TEST_F(GroupArguments, NamesBlocksThatDoNotFit) {
  EXPECT_THAT(refusal([&] { group().all_gather(good_, at::ones({7})); }),
              HasSubstr("7 elements cannot be 2 blocks of 4"));
  EXPECT_THAT(refusal([&] { group().reduce_scatter(at::ones({7}), good_); }),
              HasSubstr("7 elements cannot be 2 blocks of 4"));
  EXPECT_THAT(refusal([&] { group().gather(good_, at::ones({4}), 0); }),
              HasSubstr("4 elements cannot be 2 blocks of 4"));
}

TEST_F(GroupArguments, NamesTypesThatDiffer) {
  EXPECT_THAT(refusal([&] { group().all_gather(good_, at::ones({8}, at::kDouble)); }),
              AllOf(HasSubstr("Float"), HasSubstr("Double")));
}

TEST_F(GroupArguments, RefusesAGroupWithoutRanks) {
  EXPECT_THAT(refusal([] { tests::thread_groups(0); }), HasSubstr("0 ranks"));
}

TEST_F(GroupArguments, NamesAMessageOfAnotherSize) {
  group().send(good_, 1);
  EXPECT_THAT(refusal([&] { groups_[1]->recv(at::ones({5}), 0); }),
              AllOf(HasSubstr("rank 0 sent 4 elements of Float with tag 0"), HasSubstr("has 5")));
}

}  // namespace
}  // namespace trireme::arguments_test
