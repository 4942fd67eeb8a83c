#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/batch_sizes.h>

#include "../base/expect_error.h"

namespace trireme::plan::batch_sizes_test {
namespace {

using testing::HasSubstr;

std::string refusal(const BatchSizes& given) {
  return message_of(ErrorCode::invalid_argument, [&] { batch_sizes(given); });
}

TEST(BatchSizes, AnyTwoFixTheThird) {
  const BatchSizes all{64, 8, 4, 2};
  EXPECT_EQ(batch_sizes({64, 8, 0, 2}), all);
  EXPECT_EQ(batch_sizes({64, 0, 4, 2}), all);
  EXPECT_EQ(batch_sizes({0, 8, 4, 2}), all);
  EXPECT_EQ(batch_sizes(all), all);
  EXPECT_TRUE(all.even());
  EXPECT_EQ(all.describe(), "64 samples: 8 x 4 micro-batches x 2 replicas");
  EXPECT_EQ(all.to_json()["accumulate"], 4);
}

TEST(BatchSizes, ReplicasDoNotAccumulateUnlessAsked) {
  EXPECT_EQ(batch_sizes({64, 0, 0, 2}), (BatchSizes{64, 32, 1, 2}));
  EXPECT_EQ(batch_sizes({0, 8, 0, 2}), (BatchSizes{16, 8, 1, 2}));
}

TEST(BatchSizes, TheLastAreSmallerWhereNothingDivides) {
  const BatchSizes sizes = batch_sizes({50, 8, 0, 3});  // Shares of 17, 17 and 16.
  EXPECT_EQ(sizes.accumulate, 3);
  EXPECT_FALSE(sizes.even());
  EXPECT_THAT(sizes.describe(), HasSubstr("the last ones smaller"));
  EXPECT_EQ(batch_sizes({50, 0, 3, 3}).micro, 6);
  EXPECT_EQ(batch_sizes({50, 6, 3, 3}).global, 50);
}

// Every pair that comes out covers the batch, and one micro-batch less would not.
TEST(BatchSizes, CoverTheGlobalBatch) {
  for (int64_t global = 1; global <= 40; ++global)
    for (int64_t replicas = 1; replicas <= 5 && replicas <= global; ++replicas)
      for (int64_t micro = 1; micro <= 12; ++micro) {
        const int64_t share = (global + replicas - 1) / replicas;
        if ((share + micro - 1) / micro > global / replicas) continue;
        const BatchSizes sizes = batch_sizes({global, micro, 0, replicas});
        EXPECT_GE(sizes.micro * sizes.accumulate, share);
        EXPECT_LT(sizes.micro * (sizes.accumulate - 1), share);
        EXPECT_EQ(sizes.even(), micro * sizes.accumulate * replicas == global);
        EXPECT_EQ(batch_sizes(sizes), sizes);
      }
}

TEST(BatchSizes, RefuseContradictions) {
  EXPECT_THAT(
      refusal({64, 8, 3, 2}),
      HasSubstr("64 samples is not 8 samples x 3 micro-batches x 2 replicas, which are 48"));
  EXPECT_THAT(refusal({64, 8, 3, 2}), HasSubstr("try: accumulate 4"));
  EXPECT_THAT(refusal({0, 0, 4, 2}), HasSubstr("neither the global batch nor the micro-batch"));
  EXPECT_THAT(refusal({64, -8, 0, 2}), HasSubstr("micro -8"));
  EXPECT_THAT(refusal({64, 8, 0, 0}), HasSubstr("0 replicas"));
  EXPECT_THAT(refusal({3, 0, 2, 2}), HasSubstr("at least 4 samples"));
  EXPECT_THAT(refusal({3, 0, 0, 4}), HasSubstr("has none for some"));
  EXPECT_THAT(refusal({0, INT64_MAX, 2, 1}), HasSubstr("too many"));
}

}  // namespace
}  // namespace trireme::plan::batch_sizes_test
