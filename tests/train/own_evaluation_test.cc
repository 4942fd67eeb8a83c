// Losses, metrics, schedules and early stops of the user's own.
#include "jobs.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/checkpoint/folder.h>
#include <trireme/checkpoint/step_name.h>
#include <trireme/train/metric.h>
#include <filesystem>
#include <mutex>

#include "../base/expect_error.h"

namespace trireme::own_evaluation_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::clouds;
using tests::fit;
using tests::job;

// The root of the mean square of all logits: it is no mean of the values of batches.
Metric rms() {
  return {
      .name = "rms",
      .sums =
          [](const at::Tensor& output, const at::Tensor&) {
            return at::tensor(
                {output.square().sum().item<double>(), static_cast<double>(output.numel())},
                at::kDouble);
          },
      .value = [](const at::Tensor& sums) { return (sums[0] / sums[1]).sqrt().item<double>(); }};
}

Metric top2() {
  return mean_metric(
      "top2",
      [](const at::Tensor& output, const at::Tensor& target) {
        return std::get<1>(output.topk(2, 1)).eq(target.unsqueeze(1)).any(1);
      },
      /*higher_is_better=*/true);
}

TEST(OwnMetrics, AreExactForAnyNumberOfReplicas) {
  Job with = job();
  with.metrics = {rms(), top2()};
  const auto alone = fit(tests::options(), with, clouds(90), clouds(37, 2)).eval->metrics;
  ASSERT_EQ(alone.size(), 2u);
  EXPECT_GT(alone.at("top2"), 0.7);
  EXPECT_LE(alone.at("top2"), 1);
  for (const int replicas : {2, 3, 5}) {
    const Report report = fit(tests::options(replicas), with, clouds(90), clouds(37, 2));
    for (const auto& [name, value] : alone)
      EXPECT_NEAR(report.eval->metrics.at(name), value, 1e-12) << name;
    EXPECT_NEAR(report.to_json()["eval"]["metrics"]["rms"].get<double>(), alone.at("rms"), 1e-12);
  }
}

TEST(OwnMetrics, AreExactOnTheStagesOfAPipeline) {
  Job with = job<tests::Chain>();
  with.metrics = {rms(), top2()};
  const auto alone = fit(tests::options(), with, clouds(90), clouds(37, 2)).eval->metrics;
  TrainerOptions options = tests::options(2);
  options.strategy = "pipeline";
  options.division.mesh.pipeline = 2;
  const Report report = fit(options, with, clouds(90), clouds(37, 2));
  for (const auto& [name, value] : alone)
    EXPECT_NEAR(report.eval->metrics.at(name), value, 1e-10) << name;
}

TEST(OwnMetrics, AreRefusedBeforeAStepIfTheyCannotWork) {
  const auto refusal = [](Metric metric) {
    Job with = job();
    with.metrics = {top2(), std::move(metric)};
    return message_of(ErrorCode::invalid_argument,
                      [&] { fit(tests::options(), with, clouds(20), clouds(8, 2)); });
  };
  EXPECT_THAT(refusal(top2()), HasSubstr("already has a value 'top2'"));
  EXPECT_THAT(refusal(mean_metric("loss", top2().sums)), HasSubstr("'loss'"));
  EXPECT_THAT(refusal({.name = "empty"}), HasSubstr("nothing computes the metric 'empty'"));
  Metric wide = rms();
  wide.size = 3;
  EXPECT_THAT(refusal(wide),
              AllOf(HasSubstr("metric 'rms' have shape [2]"), HasSubstr("size is 3")));
}

TEST(OwnLoss, TrainsInsteadOfCrossEntropy) {
  Job with = job();
  with.loss = [](const at::Tensor& output, const at::Tensor& target) {
    return (output - at::one_hot(target, 3).to(output.scalar_type())).square().mean();
  };
  const Report one = fit(tests::options(), with, clouds(90), clouds(20, 2)),
               two = fit(tests::options(2), with, clouds(90), clouds(20, 2));
  EXPECT_LT(one.loss_history.back(), one.loss_history.front());
  EXPECT_LT(tests::difference(one.loss_history, two.loss_history), 1e-12);
  EXPECT_NE(one.parameters_sha256,
            fit(tests::options(), job(), clouds(90), clouds(20, 2)).parameters_sha256);
}

// Losses that fall until the given epoch and rise after it, whatever the model does.
Job with_losses_that_rise_after(int64_t best,
                                const std::shared_ptr<std::atomic<int>>& evaluations) {
  Job with = job();
  with.metrics = {mean_metric("distance", [best, evaluations](const at::Tensor& output,
                                                              const at::Tensor&) {
    const int64_t number = (*evaluations)++;
    return at::full({output.size(0)}, static_cast<double>(std::abs(number - best)), at::kDouble);
  })};
  return with;
}

TrainerOptions patient(int64_t epochs) {
  TrainerOptions options = tests::options();
  options.epochs = epochs;
  options.early_stop = {.patience = 2, .measure = "distance"};
  return options;
}

TEST(EarlyStopOfARun, EndsItAndSavesTheState) {
  const tests::Folder folder;
  TrainerOptions options = patient(20);
  options.checkpoint.dir = folder.path();
  // 10 test samples are one batch, so each evaluation calls the metric once.
  const auto evaluations = std::make_shared<std::atomic<int>>(0);
  const Report report =
      fit(options, with_losses_that_rise_after(2, evaluations), clouds(40), clouds(10, 2));
  EXPECT_EQ(report.epochs, 5);
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(report.stop_reason, "early_stop");
  EXPECT_NE(report.checkpoint, "");

  // The same command finds that the run is over, and with more patience it goes on.
  const Report again =
      fit(options, with_losses_that_rise_after(2, evaluations), clouds(40), clouds(10, 2));
  EXPECT_EQ(again.epochs, 5);
  EXPECT_EQ(again.stop_reason, "early_stop");
  options.early_stop.patience = 4;
  const Report further =
      fit(options, with_losses_that_rise_after(2, evaluations), clouds(40), clouds(10, 2));
  EXPECT_EQ(further.epochs, 7);
}

TEST(EarlyStopOfARun, ThatEndsBeforeIsNoStop) {
  const auto evaluations = std::make_shared<std::atomic<int>>(0);
  const Report report =
      fit(patient(4), with_losses_that_rise_after(2, evaluations), clouds(40), clouds(10, 2));
  EXPECT_EQ(report.epochs, 4);
  EXPECT_FALSE(report.stopped);
}

TEST(EarlyStopOfARun, IsTheSameOnProcesses) {
  tests::Workers workers(2);
  workers.on_each([](World& world) {
    Job with = job();
    with.metrics = {mean_metric("same", [](const at::Tensor& output, const at::Tensor&) {
      return at::ones({output.size(0)}, at::kDouble);
    })};
    TrainerOptions options = tests::options();
    options.epochs = 20;
    options.early_stop = {.patience = 3, .measure = "same"};
    const Report report = Trainer(world, options).fit(with, clouds(40), clouds(10, 2));
    EXPECT_EQ(report.epochs, 4);
    EXPECT_EQ(report.stop_reason, "early_stop");
  });
  workers.leave();
}

TEST(EarlyStopOfARun, NeedsEvaluations) {
  const auto refusal = [](const TrainerOptions& options, std::shared_ptr<const Source> test) {
    return message_of(ErrorCode::invalid_argument,
                      [&] { fit(options, job(), clouds(20), std::move(test)); });
  };
  TrainerOptions options = tests::options();
  options.early_stop.patience = 1;
  EXPECT_THAT(refusal(options, nullptr), HasSubstr("no held-out samples"));
  options.evaluate_every = 0;
  EXPECT_THAT(refusal(options, clouds(8, 2)), HasSubstr("train.evaluate_every is 0"));
  options.evaluate_every = 1;
  options.early_stop.measure = "f1";
  EXPECT_THAT(refusal(options, clouds(8, 2)), HasSubstr("early_stop.measure is \"f1\""));
}

// The losses have their own order, and the best metric is the highest one.
TEST(CheckpointsOfARun, TheBestByAMetricStay) {
  const tests::Folder folder;
  TrainerOptions options = tests::options();
  options.epochs = 6;
  options.checkpoint = {
      .dir = folder.path(), .every_epochs = 1, .keep = 1, .keep_best = 2, .measure = "closeness"};
  const auto evaluations = std::make_shared<std::atomic<int>>(0);
  Job with = job();
  with.metrics = {mean_metric(
      "closeness",
      [evaluations](const at::Tensor& output, const at::Tensor&) {
        const int64_t number = (*evaluations)++;  // One batch is an evaluation.
        return at::full({output.size(0)}, -static_cast<double>(std::abs(number - 2)), at::kDouble);
      },
      /*higher_is_better=*/true)};
  const Report report = fit(options, with, clouds(40), clouds(10, 2));
  const int64_t steps = report.steps / 6;
  const auto there = [&](int64_t epoch) {
    return std::filesystem::exists(std::filesystem::path(folder.path()) /
                                   checkpoint::name_of_step(epoch * steps));
  };
  // Epochs 2 and 3, of which the older one wins against 4; and the newest.
  EXPECT_EQ((std::vector<bool>{there(1), there(2), there(3), there(4), there(5), there(6)}),
            (std::vector<bool>{false, true, true, false, false, true}));
  const auto manifest = checkpoint::open_checkpoint(report.checkpoint).manifest;
  EXPECT_EQ(checkpoint::evaluated(manifest, "closeness"), -3);

  options.checkpoint.measure = "f1";
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { fit(options, with, clouds(40), clouds(10, 2)); }),
              HasSubstr("checkpoint.measure is \"f1\""));
}

TEST(OwnSchedule, DecidesTheLearningRateOfEachStep) {
  register_schedule("halves each step", [](const ScheduleOptions& options, int64_t step) {
    EXPECT_GT(options.total_steps, 0);
    return std::pow(0.5, static_cast<double>(step));
  });
  struct Rates : Callback {
    void on_step(TrainContext&, const monitor::StepRecord& record) override {
      all.push_back(record.learning_rate);
    }
    std::vector<double> all;
  };
  const auto rates = std::make_shared<Rates>();
  TrainerOptions options = tests::options();
  options.steps = 3;
  options.schedule.name = "halves each step";
  options.callbacks = {rates};
  fit(options, job(), clouds(90));
  EXPECT_EQ(rates->all, (std::vector<double>{0.1, 0.05, 0.025}));
}

TEST(OwnSchedule, ThatGivesNoRateIsNamedWithTheStep) {
  register_schedule("negative from step 2",
                    [](const ScheduleOptions&, int64_t step) { return step < 1 ? 1.0 : -1.0; });
  TrainerOptions options = tests::options();
  options.schedule.name = "negative from step 2";
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { fit(options, job(), clouds(90)); }),
              AllOf(HasSubstr("schedule 'negative from step 2'"), HasSubstr("for step 2")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [] {
                           register_schedule("cosine",
                                             [](const ScheduleOptions&, int64_t) { return 1.0; });
                         }),
              HasSubstr("'cosine' already exists"));
}

}  // namespace
}  // namespace trireme::own_evaluation_test
