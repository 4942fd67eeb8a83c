#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/shard_bytes.h>

#include "../base/expect_error.h"

namespace trireme::plan::shard_bytes_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kPaperParameters = 7'500'000'000;  // The model of figure 1.

double gigabytes(int level, int ranks) {
  return static_cast<double>(sharded_bytes(level, ranks, kPaperParameters).total()) * 1e-9;
}

TEST(ShardedBytes, AreThoseOfThePaperForSixtyFourRanks) {
  EXPECT_NEAR(gigabytes(0, 64), 120, 0.05);
  EXPECT_NEAR(gigabytes(1, 64), 31.4, 0.05);
  EXPECT_NEAR(gigabytes(2, 64), 16.6, 0.05);
  EXPECT_NEAR(gigabytes(3, 64), 1.9, 0.05);
}

// Table 1 of the paper, the columns of 7.5 B parameters.
TEST(ShardedBytes, AreThoseOfThePapersTable) {
  EXPECT_NEAR(gigabytes(1, 4), 52.5, 0.05);
  EXPECT_NEAR(gigabytes(2, 4), 41.3, 0.06);
  EXPECT_NEAR(gigabytes(3, 4), 30.0, 0.05);
  EXPECT_NEAR(gigabytes(1, 1024), 30.1, 0.05);
  EXPECT_NEAR(gigabytes(2, 1024), 15.1, 0.05);
  EXPECT_NEAR(gigabytes(3, 1024), 0.12, 0.005);
}

TEST(ShardedBytes, AreTheSameForEveryLevelOnOneRank) {
  for (int level = 1; level <= 3; ++level)
    EXPECT_EQ(sharded_bytes(level, 1, 1001), sharded_bytes(0, 1, 1001));
}

TEST(ShardedBytes, CountTheLongestShard) {
  const StateBytes adam_in_float32{4, 4, 8, 0};
  EXPECT_EQ(sharded_bytes(1, 3, 10, adam_in_float32), (ShardedBytes{40, 40, 32}));
  EXPECT_EQ(sharded_bytes(2, 3, 10, adam_in_float32), (ShardedBytes{40, 16, 32}));
  EXPECT_EQ(sharded_bytes(3, 3, 10, adam_in_float32), (ShardedBytes{16, 16, 32}));
  EXPECT_EQ(sharded_bytes(3, 16, 10, adam_in_float32).parameters, 4);
}

TEST(ShardedBytes, ArePrinted) {
  const ShardedBytes bytes = sharded_bytes(1, 64, kPaperParameters);
  EXPECT_EQ(bytes.describe(),
            "31.4 GB: parameters 15.0 GB, gradients 15.0 GB, optimizer state 1.4 GB");
  EXPECT_EQ(bytes.to_json()["total"], bytes.total());
}

TEST(ShardedBytes, RefuseWhatHasNoMeaning) {
  const auto message = [](auto... arguments) {
    return message_of(ErrorCode::invalid_argument, [=] { sharded_bytes(arguments...); });
  };
  EXPECT_THAT(message(4, 2, 10), HasSubstr("level 4; try: 0, 1, 2 or 3"));
  EXPECT_THAT(message(1, 0, 10), HasSubstr("0 ranks"));
  EXPECT_THAT(message(1, 2, -10), HasSubstr("-10 parameters"));
  EXPECT_THAT(message(1, 2, INT64_MAX), HasSubstr("parameters"));
  EXPECT_THAT(message(1, 2, 10, StateBytes{-2}), HasSubstr("-2 bytes for each element"));
}

}  // namespace
}  // namespace trireme::plan::shard_bytes_test
