// Tests of the keys for precision, compression, local steps and the scaled learning rate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/base/error.h>
#include <trireme/run/dataset.h>

namespace trireme::numerics_config_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string message(const std::vector<std::string>& set) {
  try {
    load_config({{}, set});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(ConfigPrecision, AutocastNeedsFloat32Parameters) {
  EXPECT_EQ(message({"train.precision=bf16"}), "no error");
  EXPECT_EQ(message({"train.dtype=bfloat16"}), "no error");
  EXPECT_THAT(message({"train.precision=bf16", "train.dtype=float64"}),
              AllOf(HasSubstr("autocast"), HasSubstr("train.dtype=float32")));
  EXPECT_THAT(message({"train.precision=fp16", "train.dtype=float16"}), HasSubstr("autocast"));
  EXPECT_THAT(message({"train.precision=int4"}), HasSubstr("float32, bf16, fp16"));
}

TEST(ConfigPrecision, ALossScaleIsForFloat16) {
  EXPECT_EQ(message({"train.precision=fp16", "train.loss_scale=8"}), "no error");
  EXPECT_EQ(message({"train.dtype=float16", "train.loss_scale=8"}), "no error");
  EXPECT_THAT(message({"train.precision=bf16", "train.loss_scale=8"}),
              HasSubstr("train.loss_scale is for"));
  EXPECT_THAT(message({"train.precision=fp16", "train.loss_scale=0"}), HasSubstr("above 0"));
}

TEST(ConfigPrecision, PlansReduceSixteenBitParametersByTheirMasters) {
  EXPECT_EQ(reduced_dtype(load_config({{}, {"train.dtype=bfloat16"}})), plan::DType::float32);
  EXPECT_EQ(reduced_dtype(load_config({{}, {"train.dtype=float64"}})), plan::DType::float64);
}

TEST(ConfigCompression, EachOptionIsForItsMethodOnly) {
  EXPECT_EQ(message({"strategy.compression=powersgd", "strategy.compression_rank=4"}), "no error");
  EXPECT_THAT(message({"strategy.compression=topk", "strategy.compression_rank=4"}),
              HasSubstr("powersgd"));
  EXPECT_THAT(message({"strategy.compression_ratio=0.1"}), HasSubstr("topk"));
  EXPECT_THAT(message({"strategy.compression=topk", "strategy.compression_ratio=2"}),
              HasSubstr("strategy.compression_ratio"));
}

TEST(ConfigLocalSteps, ExcludeCompressionAndAreNeededByTheirOptions) {
  EXPECT_EQ(message({"strategy.local_steps=4", "strategy.local_after=10",
                     "strategy.local_momentum=true"}),
            "no error");
  EXPECT_THAT(message({"strategy.local_after=10"}),
              AllOf(HasSubstr("strategy.local_after"), HasSubstr("strategy.local_steps=8")));
  EXPECT_THAT(message({"strategy.local_momentum=true"}), HasSubstr("strategy.local_steps is 1"));
  EXPECT_THAT(message({"strategy.local_steps=4", "strategy.compression=int8"}),
              HasSubstr("one of them"));
}

TEST(ConfigScaledRate, NeedsTheBatchForWhichTheRateWasFound) {
  EXPECT_EQ(message({"optimizer.scale_lr=linear", "optimizer.base_batch=32"}), "no error");
  EXPECT_THAT(message({"optimizer.scale_lr=sqrt"}), HasSubstr("optimizer.base_batch=256"));
  EXPECT_THAT(message({"optimizer.base_batch=32"}),
              HasSubstr("optimizer.base_batch is for optimizer.scale_lr linear, sqrt"));
}

}  // namespace
}  // namespace trireme::numerics_config_test
