#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/tensor_slice.h>

#include "../base/expect_error.h"

namespace trireme::plan::tensor_slice_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

TEST(TensorSlice, OfAWholeTensorStartsAtZeroAndHasItsShape) {
  const TensorSlice slice = TensorSlice::whole("conv1.weight", {32, 6});
  EXPECT_EQ(slice.tensor, "conv1.weight");
  EXPECT_EQ(slice.shape, (std::vector<int64_t>{32, 6}));
  EXPECT_EQ(slice.sizes, slice.shape);
  EXPECT_EQ(slice.from.size(), 2U);
  EXPECT_THAT(slice.from, Each(0));
  EXPECT_TRUE(slice.is_whole());
  EXPECT_NO_THROW(check(slice));
}

TEST(TensorSlice, CountsItsElements) {
  EXPECT_EQ(TensorSlice::whole("w", {32, 6}).elements(), 192);
  EXPECT_EQ(TensorSlice::whole("step", {}).elements(), 1);
  EXPECT_EQ(TensorSlice::whole("empty", {7, 0}).elements(), 0);
  EXPECT_EQ((TensorSlice{"w", {32, 6}, {0, 3}, {16, 3}}.elements()), 48);
}

TEST(TensorSlice, DescribesItsRangesOrTheWholeShape) {
  EXPECT_EQ((TensorSlice{"conv1.weight", {32, 6}, {0, 3}, {16, 3}}.describe()),
            "conv1.weight[0:16, 3:6] of [32, 6]");
  EXPECT_EQ(TensorSlice::whole("conv1.weight", {32, 6}).describe(), "conv1.weight[32, 6]");
  EXPECT_EQ(TensorSlice::whole("step", {}).describe(), "step[]");
}

TEST(TensorSlice, IsNotWholeIfARangeIsShorter) {
  EXPECT_FALSE((TensorSlice{"w", {4, 6}, {0, 0}, {4, 5}}.is_whole()));
  EXPECT_FALSE((TensorSlice{"w", {4, 6}, {2, 0}, {2, 6}}.is_whole()));
}

TEST(TensorSlice, EqualsOnlyTheSamePlaceInTheSameTensor) {
  const TensorSlice slice{"w", {4, 6}, {0, 3}, {2, 3}};
  TensorSlice renamed = slice, reshaped = slice, moved = slice, shorter = slice;
  EXPECT_EQ(slice, renamed);
  renamed.tensor = "v";
  reshaped.shape = {4, 7};
  moved.from = {2, 3};
  shorter.sizes = {1, 3};
  for (const TensorSlice& other : {renamed, reshaped, moved, shorter}) EXPECT_NE(slice, other);
}

TEST(TensorSlice, MayReachTheEndsOfItsTensorAndBeEmpty) {
  EXPECT_NO_THROW(check(TensorSlice{"w", {4, 6}, {0, 0}, {2, 3}}));
  EXPECT_NO_THROW(check(TensorSlice{"w", {4, 6}, {2, 3}, {2, 3}}));
  EXPECT_NO_THROW(check(TensorSlice{"w", {4, 6}, {4, 0}, {0, 6}}));
  EXPECT_NO_THROW(check(TensorSlice{"step", {}, {}, {}}));
}

TEST(TensorSlice, OutsideItsTensorIsRefusedWithItsRanges) {
  struct Outside {
    TensorSlice slice;
    std::string ranges;
  };
  const std::vector<int64_t> shape = {4, 6};
  const std::vector<Outside> all = {
      {{"w", shape, {0}, {2, 3}}, "w[0:2]"},               // Too few starts.
      {{"w", shape, {0, 0}, {2}}, "w[0:2, "},              // Too few sizes.
      {{"w", shape, {0, 0, 0}, {2, 3, 1}}, "w[0:2, 0:3"},  // Too many dimensions.
      {{"w", shape, {-1, 0}, {2, 3}}, "w[-1:1, 0:3]"},     // Begins before the tensor.
      {{"w", shape, {2, 0}, {-1, 3}}, "w[2:1, 0:3]"},      // Has a negative size.
      {{"w", shape, {3, 0}, {2, 3}}, "w[3:5, 0:3]"},       // Ends behind the first dimension.
      {{"w", shape, {0, 4}, {2, 3}}, "w[0:2, 4:7]"},       // Ends behind the last one.
      {{"w", shape, {1, 0}, {4, 6}}, "w["},                // Has the whole size, but not at 0.
  };
  for (const auto& [slice, ranges] : all)
    EXPECT_THAT(
        message_of(ErrorCode::internal, [outside = slice] { check(outside); }),
        AllOf(HasSubstr("the slice " + ranges), HasSubstr("does not lie within its tensor")));
}

}  // namespace
}  // namespace trireme::plan::tensor_slice_test
