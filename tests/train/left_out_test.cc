// Training on data of which samples are left out.
#include "jobs.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <functional>

#include "../base/expect_error.h"

namespace trireme::tests {
namespace {

using ::testing::HasSubstr;

// The clouds without the samples for which `leaves` is true.
class Sieve : public Source {
 public:
  Sieve(std::shared_ptr<TensorSource> all, std::function<bool(int64_t)> leaves)
      : all_(std::move(all)), leaves_(std::move(leaves)) {}
  int64_t size() const override { return all_->size(); }
  Example get(const Draw& draw) const override { return all_->get(draw); }
  bool leaves_out() const override { return true; }
  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override {
    std::vector<int64_t> kept;
    for (size_t i = 0; i < draws.indices.size(); ++i)
      if (leaves_(draws.indices[i]))
        left_out.push_back(i);
      else
        kept.push_back(draws.indices[i]);
    const Example rows = all_->get_batch(kept.empty() ? Draws({0}) : Draws(kept));
    const auto count = static_cast<int64_t>(kept.size());
    return {rows.data.narrow(0, 0, count), rows.target.narrow(0, 0, count)};
  }

 private:
  const std::shared_ptr<TensorSource> all_;
  const std::function<bool(int64_t)> leaves_;
};

std::shared_ptr<Sieve> without(std::function<bool(int64_t)> leaves) {
  return std::make_shared<Sieve>(clouds(90), std::move(leaves));
}

// The loss of the first step, computed by hand: the mean over the samples that are left.
TEST(LeftOut, TheMeanIsThatOfTheSamplesThatAreLeft) {
  const auto leaves = [](int64_t sample) { return sample % 3 == 0 || sample < 20; };
  const Report reference = fit(options(), job(), without(leaves), without(leaves));
  EXPECT_EQ(reference.steps, 12);
  EXPECT_EQ(reference.samples.expected, 180);
  EXPECT_TRUE(reference.samples.exactly_once());
  EXPECT_EQ(reference.eval->samples, 47);
  for (const int replicas : {2, 3, 4}) {
    const Report report = fit(options(replicas), job(), without(leaves), without(leaves));
    EXPECT_LT(difference(report.loss_history, reference.loss_history), 1e-10);
    EXPECT_TRUE(report.samples.exactly_once());
    EXPECT_EQ(report.eval->samples, 47);
    EXPECT_NEAR(report.eval->loss, reference.eval->loss, 1e-10);
  }
}

TEST(LeftOut, TrainsAsOnDataWithoutTheseSamples) {
  // In order, and with batches that lose the same samples, nothing else differs.
  TrainerOptions in_order = options();
  in_order.shuffle = false;
  in_order.batch = 30;
  const auto all = clouds(90);
  const Report filtered =
      fit(in_order, job(),
          std::make_shared<Sieve>(all, [](int64_t sample) { return sample % 30 >= 20; }));
  std::vector<int64_t> kept;
  for (int64_t sample = 0; sample < 90; ++sample)
    if (sample % 30 < 20) kept.push_back(sample);
  const Example rows = all->get_batch(Draws(kept));
  in_order.batch = 20;
  const Report smaller =
      fit(in_order, job(), std::make_shared<TensorSource>(rows.data, rows.target));
  EXPECT_EQ(filtered.loss_history, smaller.loss_history);
}

TEST(LeftOut, ABatchWithoutSamplesIsNoStep) {
  TrainerOptions in_order = options();
  in_order.shuffle = false;
  for (const int replicas : {1, 2, 3}) {
    in_order.replicas = replicas;
    const Report report =
        fit(in_order, job(), without([](int64_t sample) { return sample >= 16 && sample < 32; }));
    EXPECT_EQ(report.steps, 10);
    EXPECT_EQ(report.epochs, 2);
    EXPECT_EQ(report.skipped_steps, 2);
    EXPECT_TRUE(report.samples.exactly_once());
  }
}

TEST(LeftOut, NoSampleInAWholeEpochIsAnError) {
  TrainerOptions by_steps = options(2);
  by_steps.steps = 5;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { fit(by_steps, job(), without([](int64_t) { return true; })); }),
              HasSubstr("a whole epoch"));
}

// Some shards lose all of their samples, and one batch does.
TEST(LeftOut, VirtualShardsGiveTheSameBitsForAnyNumberOfReplicas) {
  const auto leaves = [](int64_t sample) {
    return sample % 7 == 0 || (sample >= 20 && sample < 30) || (sample >= 48 && sample < 64);
  };
  TrainerOptions shards = options();
  shards.shuffle = false;
  const Report whole = fit(shards, job(), without(leaves));
  shards.virtual_shards = 5;
  const Report reference = fit(shards, job(), without(leaves));
  EXPECT_EQ(reference.steps, 10);
  EXPECT_EQ(reference.skipped_steps, 2);
  EXPECT_LT(difference(reference.loss_history, whole.loss_history), 1e-10);
  for (const int replicas : {2, 3, 5}) {
    shards.replicas = replicas;
    const Report report = fit(shards, job(), without(leaves));
    EXPECT_EQ(report.loss_history, reference.loss_history) << replicas;
    EXPECT_EQ(report.parameters_sha256, reference.parameters_sha256) << replicas;
    EXPECT_TRUE(report.samples.exactly_once());
  }
}

TEST(LeftOut, TheReportSaysHowTheDataCame) {
  TrainerOptions slow = options(2);
  slow.loader_threads = 1;
  const Json input = fit(slow, job(), clouds(90)).to_json().at("input");
  EXPECT_EQ(input.at("waited_share_of_rank").size(), 2u);
  EXPECT_EQ(input.at("slowest_stage"), "load");
  EXPECT_EQ(input.at("threads"), 2);
  EXPECT_EQ(input.at("skipped"), 0);
  EXPECT_EQ(input.at("skipped_in_test"), 0);
}

}  // namespace
}  // namespace trireme::tests
