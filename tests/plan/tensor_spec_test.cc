#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/tensor_spec.h>

#include "../base/expect_error.h"

namespace trireme::plan::tensor_spec_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(TensorSpec, CountsElementsAndBytes) {
  EXPECT_EQ((TensorSpec{"w", {32, 1, 3, 3}}.elements()), 288);
  EXPECT_EQ((TensorSpec{"w", {32, 1, 3, 3}}.bytes()), 1152);
  EXPECT_EQ((TensorSpec{"scalar", {}, DType::float64}.bytes()), 8);
  EXPECT_EQ((TensorSpec{"empty", {7, 0, 3}}.elements()), 0);
}

TEST(TensorSpec, DescribesDTypeAndShape) {
  EXPECT_EQ((TensorSpec{"w", {32, 1, 3, 3}}.describe()), "float32[32, 1, 3, 3]");
  EXPECT_EQ((TensorSpec{"step", {}, DType::int64}.describe()), "int64[]");
}

TEST(TensorSpec, RefusesAnImpossibleShape) {
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [] { (void)TensorSpec{"w", {3, -1}}.elements(); }),
      AllOf(HasSubstr("'w'"), HasSubstr("[3, -1]")));
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument,
                 [] { (void)TensorSpec{"w", {int64_t{1} << 40, int64_t{1} << 40}}.elements(); }),
      HasSubstr("'w'"));
}

TEST(DType, NamesReadBackAsTheSameDType) {
  for (const DType dtype :
       {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int32,
        DType::int64, DType::uint8, DType::boolean, DType::int8, DType::int16, DType::uint16,
        DType::uint32, DType::uint64, DType::float8_e4m3fn, DType::float8_e5m2}) {
    EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
  }
}

TEST(DType, HasTheSizeOfItsElements) {
  EXPECT_EQ(bytes_of(DType::float64), 8);
  EXPECT_EQ(bytes_of(DType::int64), 8);
  EXPECT_EQ(bytes_of(DType::float32), 4);
  EXPECT_EQ(bytes_of(DType::int32), 4);
  EXPECT_EQ(bytes_of(DType::float16), 2);
  EXPECT_EQ(bytes_of(DType::bfloat16), 2);
  EXPECT_EQ(bytes_of(DType::uint8), 1);
  EXPECT_EQ(bytes_of(DType::boolean), 1);
  EXPECT_EQ(bytes_of(DType::int16), 2);
  EXPECT_EQ(bytes_of(DType::uint64), 8);
  EXPECT_EQ(bytes_of(DType::float8_e5m2), 1);
}

TEST(DType, OffersTheChoicesForAnUnknownName) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { dtype_from_string("float31"); }),
              AllOf(HasSubstr("'float31'"), HasSubstr("bfloat16")));
}

}  // namespace
}  // namespace trireme::plan::tensor_spec_test
