#include <gmock/gmock.h>
#include <trireme/checkpoint/safetensors_dtype.h>
#include <trireme/checkpoint/tensor_file.h>

#include "checkpoint_testing.h"

namespace trireme::checkpoint::differences_test {
namespace {

using plan::DType;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> between(const OwnedTensor& a, const OwnedTensor& b) {
  TensorFile first, second;
  first.tensors = {stored_whole(a.view())};
  second.tensors = {stored_whole(b.view())};
  return differences(first, second);
}

OwnedTensor bytes(DType dtype, std::vector<int> values) {
  const auto elements = static_cast<int64_t>(values.size()) / plan::bytes_of(dtype);
  OwnedTensor tensor("t", {elements}, dtype);
  for (size_t i = 0; i < values.size(); ++i) tensor.bytes[i] = static_cast<std::byte>(values[i]);
  return tensor;
}

TEST(Differences, OfTypeAreToldWhereTheBytesAreTheSame) {
  EXPECT_THAT(between(bytes(DType::boolean, {1, 0, 1}), bytes(DType::uint8, {1, 0, 1})),
              ElementsAre("t: bool[3] and uint8[3]"));
  EXPECT_THAT(between(bytes(DType::float16, {0, 60}), bytes(DType::bfloat16, {0, 60})),
              ElementsAre("t: float16[1] and bfloat16[1]"));
}

TEST(Differences, OfShapeAreToldWhereTheBytesAreTheSame) {
  EXPECT_THAT(between(OwnedTensor("t", {}, DType::int16), OwnedTensor("t", {1}, DType::int16)),
              ElementsAre("t: int16[] and int16[1]"));
  EXPECT_THAT(between(OwnedTensor("t", {0, 2}), OwnedTensor("t", {2, 0})),
              ElementsAre("t: float32[0, 2] and float32[2, 0]"));
}

TEST(Differences, OfValuesAreToldInEveryType) {
  for (const auto& [dtype, name] : kSafetensorsDTypes) {
    const auto width = static_cast<size_t>(plan::bytes_of(dtype));
    std::vector<int> zero(2 * width, 0), other = zero;
    other[2 * width - 1] = 1;  // The most significant byte of the second element.
    EXPECT_THAT(between(bytes(dtype, zero), bytes(dtype, other)),
                ElementsAre(testing::StartsWith("t: 1 of 2 elements differ, by ")))
        << name;
    EXPECT_THAT(between(bytes(dtype, other), bytes(dtype, other)), IsEmpty()) << name;
  }
}

TEST(Differences, KnowTheValuesOfSmallTypes) {
  const auto by = [](DType dtype, int a, int b) {
    return between(bytes(dtype, {a}), bytes(dtype, {b})).at(0);
  };
  using testing::HasSubstr;
  EXPECT_THAT(by(DType::int8, 0xff, 1), HasSubstr("by 2 at most"));
  EXPECT_THAT(by(DType::boolean, 0, 1), HasSubstr("by 1 at most"));
  EXPECT_THAT(by(DType::float8_e4m3fn, 0x38, 0x40), HasSubstr("by 1 at most"));  // 1 and 2.
  EXPECT_THAT(by(DType::float8_e4m3fn, 0x7e, 0), HasSubstr("by 448 at most"));
  EXPECT_THAT(by(DType::float8_e5m2, 0x3c, 0x40), HasSubstr("by 1 at most"));
  EXPECT_THAT(by(DType::float8_e4m3fn, 0x7f, 0), HasSubstr("1 of them are NaN on one side"));
}

}  // namespace
}  // namespace trireme::checkpoint::differences_test
