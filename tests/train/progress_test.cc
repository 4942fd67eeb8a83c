#include <gtest/gtest.h>
#include <trireme/train/progress.h>

namespace trireme::progress_test {
namespace {

TEST(Progress, CountsASkippedBatchAsDataButNotAsAStep) {
  Progress progress;
  progress.count({0, 64}, /*updated=*/true, 0.5);
  progress.count({0, 128}, /*updated=*/false, 99);
  EXPECT_EQ(progress.step, 1);
  EXPECT_EQ(progress.skipped_steps, 1);
  EXPECT_EQ(progress.position, (plan::DataPosition{0, 128}));
  EXPECT_EQ(progress.loss_history, std::vector<double>{0.5});
}

TEST(Progress, KnowsTheEpochOfItsNewestBatch) {
  Progress progress;
  EXPECT_EQ(progress.last_epoch(), 0);
  progress.position = {2, 0};  // Two epochs are over.
  EXPECT_EQ(progress.last_epoch(), 1);
  progress.position = {2, 64};
  EXPECT_EQ(progress.last_epoch(), 2);
}

TEST(Progress, AveragesTheLossesOfItsLastSteps) {
  Progress progress;
  EXPECT_EQ(progress.mean_loss(2), 0);
  progress.loss_history = {8, 1, 3};
  EXPECT_EQ(progress.mean_loss(2), 2);
  EXPECT_EQ(progress.mean_loss(10), 4);
  EXPECT_EQ(progress.mean_loss(0), 3);
}

TEST(RunLength, EndsAfterStepsIfTheyAreGiven) {
  const RunLength length{.steps = 10, .epochs = 1, .batches_per_epoch = 2};
  EXPECT_EQ(length.total_steps(), 10);
  Progress progress;
  progress.position = {5, 0};
  EXPECT_FALSE(length.is_done(progress));
  progress.step = 10;
  EXPECT_TRUE(length.is_done(progress));
  EXPECT_FALSE(length.is_exceeded(progress));
  progress.step = 11;
  EXPECT_TRUE(length.is_exceeded(progress));
}

TEST(RunLength, ElseEndsAfterEpochs) {
  const RunLength length{.epochs = 3, .batches_per_epoch = 7};
  EXPECT_EQ(length.total_steps(), 21);
  Progress progress;
  progress.step = 21;
  progress.position = {2, 64};
  EXPECT_FALSE(length.is_done(progress));
  progress.position = {3, 0};
  EXPECT_TRUE(length.is_done(progress));
  progress.position = {3, 64};
  EXPECT_FALSE(length.is_exceeded(progress));
  progress.position = {4, 0};
  EXPECT_TRUE(length.is_exceeded(progress));
}

}  // namespace
}  // namespace trireme::progress_test
