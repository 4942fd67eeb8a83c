#include <trireme/train/resize.h>

#include <gmock/gmock.h>
#include <trireme/base/error.h>
#include <trireme/plan/data_plan.h>
#include <trireme/train/ledger.h>
#include <cmath>

namespace trireme::resize_test {
namespace {

using testing::HasSubstr;

ResizeOptions scaling(const std::string& rate, int64_t warmup = 0, int workers = 2) {
  return {"scale", rate, warmup, workers};
}

std::string refusal(const ResizeOptions& options, int64_t batch = 64) {
  try {
    check(options, batch);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Resize, OptionsThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal(scaling("linear", 10)), "");
  EXPECT_THAT(refusal({"shrink"}), HasSubstr("elastic.batch is \"shrink\""));
  EXPECT_THAT(refusal(scaling("cubic")), HasSubstr("elastic.lr is \"cubic\""));
  EXPECT_THAT(refusal({"keep", "linear"}), HasSubstr("elastic.batch=scale"));
  EXPECT_THAT(refusal(scaling("none", 5)), HasSubstr("nothing to warm up to"));
  EXPECT_THAT(refusal(scaling("linear", -1)), HasSubstr("elastic.warmup_steps is \"-1\""));
  EXPECT_THAT(refusal(scaling("linear", 0, 3), 64), HasSubstr("data.batch=66"));
}

TEST(Resize, KeepsBatchAndRateByDefault) {
  Resize resize({.workers = 4}, 64);
  EXPECT_FALSE(resize.set_workers(4, 0));
  EXPECT_FALSE(resize.set_workers(2, 10));
  EXPECT_EQ(resize.batch(), 64);
  EXPECT_EQ(resize.rate_factor(10), 1);
}

TEST(Resize, KeepsPassesNoLargerThanAtTheStart) {
  Resize resize({.workers = 4}, 64);
  resize.set_workers(4, 0);
  EXPECT_EQ(resize.passes(1), 1);
  EXPECT_EQ(resize.passes(2), 2);
  // Shares of 22 are cut into passes of at most 16, or 8.
  resize.set_workers(3, 1);
  EXPECT_EQ(resize.passes(1), 2);
  EXPECT_EQ(resize.passes(2), 3);
  resize.set_workers(1, 2);
  EXPECT_EQ(resize.passes(1), 4);
  resize.set_workers(5, 3);
  EXPECT_EQ(resize.passes(1), 1);
}

TEST(Resize, ScalesTheBatchWithTheWorkers) {
  Resize resize(scaling("none"), 64);
  EXPECT_FALSE(resize.set_workers(2, 0));
  EXPECT_EQ(resize.batch(), 64);
  EXPECT_TRUE(resize.set_workers(3, 10));
  EXPECT_EQ(resize.batch(), 96);
  EXPECT_EQ(resize.rate_factor(10), 1);
  EXPECT_EQ(resize.passes(1), 1);
  EXPECT_TRUE(resize.set_workers(1, 20));
  EXPECT_EQ(resize.batch(), 32);
}

TEST(Resize, RateFollowsLinearlyOrByTheRoot) {
  Resize linear(scaling("linear"), 64), root(scaling("sqrt"), 64);
  for (Resize* resize : {&linear, &root}) {
    resize->set_workers(2, 0);
    EXPECT_EQ(resize->rate_factor(0), 1);
    EXPECT_TRUE(resize->set_workers(4, 7));
  }
  EXPECT_EQ(linear.rate_factor(7), 2);
  EXPECT_DOUBLE_EQ(root.rate_factor(7), std::sqrt(2.0));
}

TEST(Resize, ARisingRateIsWarmedUpAndAFallingOneIsNot) {
  Resize resize(scaling("linear", 4), 64);
  resize.set_workers(2, 0);
  EXPECT_EQ(resize.rate_factor(0), 1);
  resize.set_workers(3, 10);
  EXPECT_DOUBLE_EQ(resize.rate_factor(10), 1.1);
  EXPECT_DOUBLE_EQ(resize.rate_factor(13), 1.4);
  EXPECT_DOUBLE_EQ(resize.rate_factor(14), 1.5);
  EXPECT_DOUBLE_EQ(resize.rate_factor(1000), 1.5);
  EXPECT_EQ(resize.describe(),
            "a global batch of 96 (3 workers x 32), learning rate x 1.5 (linear, over 4 steps)");
  resize.set_workers(1, 20);
  EXPECT_DOUBLE_EQ(resize.rate_factor(20), 0.5);
  resize.set_workers(4, 30);
  // It starts where the warm-up was: 0.5 + 1.5 * 3/5 = 1.4.
  resize.set_workers(3, 32);
  EXPECT_DOUBLE_EQ(resize.rate_factor(32), 1.4 + 0.1 / 5);
}

TEST(Resize, ANewcomerWithTheStateContinuesAlike) {
  Resize old(scaling("linear", 8), 64);
  old.set_workers(2, 0);
  old.set_workers(4, 10);
  Resize newcomer(scaling("linear", 8, 0), 64);
  // At first it knows only this number.
  newcomer.set_workers(4, 0);
  newcomer.load(old.state());
  for (int64_t step = 10; step < 20; ++step)
    EXPECT_EQ(newcomer.rate_factor(step), old.rate_factor(step));
  EXPECT_EQ(newcomer.batch(), 128);
}

// Epochs in which the number of workers, and with it the batch, changes in the middle. Each sample
// is used exactly once.
class ResizeInTheMiddle : public testing::TestWithParam<bool> {};
TEST_P(ResizeInTheMiddle, SharesAreACover) {
  const bool drop_last = GetParam();
  constexpr int64_t kSamples = 1437;
  Resize resize(scaling("linear", 3), 64);
  Ledger ledger;
  plan::DataPosition position;
  std::vector<int> uses(kSamples, 0);
  int64_t step = 0;
  for (const int workers : {2, 3, 4, 1, 2, 4, 2}) {
    resize.set_workers(workers, step);
    const plan::DataPlan plan(
        {.samples = kSamples, .batch = resize.batch(), .seed = 3, .drop_last = drop_last});
    // The loader does the same.
    if (plan.global_batch(position).empty()) position = {position.epoch + 1, 0};
    monitor::ContinueRecord from{.generation = step,
                                 .step = step,
                                 .position = position,
                                 .data = plan.options(),
                                 .ledger = {}};
    ledger.go_on(from);
    for (int i = 0; i < 9 && position.epoch < 2; ++i) {
      const auto batch = plan.global_batch(position);
      monitor::CommitRecord commit{
          from.generation, ++step, position, static_cast<int64_t>(batch.size()), {}, true};
      for (int rank = 0; rank < workers; ++rank) {
        const auto [first, last] =
            plan.share_of(static_cast<int64_t>(batch.size()), rank, workers);
        commit.shares.push_back(last - first);
        EXPECT_LE(last - first, 32) << "a worker's share never grows";
        if (position.epoch == 0)
          for (int64_t at = first; at < last; ++at)
            ++uses[static_cast<size_t>(batch[static_cast<size_t>(at)])];
      }
      ledger.commit(commit);
      position = plan.next(position);
    }
  }
  EXPECT_GE(position.epoch, 1);
  if (drop_last)
    EXPECT_THAT(uses, testing::Each(testing::Le(1)));
  else
    EXPECT_THAT(uses, testing::Each(1));
  EXPECT_TRUE(ledger.samples().exactly_once());
  EXPECT_THAT(ledger.errors(), testing::IsEmpty());
}
INSTANTIATE_TEST_SUITE_P(All, ResizeInTheMiddle, testing::Bool());

}  // namespace
}  // namespace trireme::resize_test
