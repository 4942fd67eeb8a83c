// Runs that trip a guard, in which a replica's bits change, or into which faults are injected.
#include "jobs.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/monitor/event_json.h>
#include <trireme/train/ledger_audit.h>
#include <atomic>
#include <cmath>
#include <limits>

#include "../base/expect_error.h"

namespace trireme::guarded_run_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::clouds;
using tests::difference;
using tests::fit;
using tests::job;

// A job whose loss is multiplied by `factor` at some evaluations of each replica, counted from 1.
Job meddled(std::set<int> evaluations, double factor, OptimizerFactory optimizer = {}) {
  Job meddled = optimizer ? job(std::move(optimizer)) : job();
  const auto counts = std::make_shared<std::map<std::thread::id, int>>();
  const auto mutex = std::make_shared<std::mutex>();
  meddled.loss = [=](const at::Tensor& output, const at::Tensor& target) {
    const bool half = output.scalar_type() == at::kHalf;
    const at::Tensor loss = at::cross_entropy_loss(half ? output.to(at::kFloat) : output, target);
    if (!at::GradMode::is_enabled()) return loss;
    const std::lock_guard lock(*mutex);
    return evaluations.count(++(*counts)[std::this_thread::get_id()]) > 0 ? loss * factor : loss;
  };
  return meddled;
}
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class GuardedRun : public ::testing::TestWithParam<int> {
 protected:
  int replicas() const { return GetParam(); }
  TrainerOptions options() const {
    TrainerOptions options = tests::options(replicas());
    options.epochs = 4;  // 6 steps in each epoch.
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, GuardedRun, ::testing::Values(1, 3),
                         ::testing::PrintToStringParamName());

TEST_P(GuardedRun, SkipsABatchWhoseLossIsNotANumber) {
  TrainerOptions options = this->options();
  options.guard.policy = "skip";
  const Report report = fit(options, meddled({9}, kNan), clouds(90), clouds(30, 2));
  EXPECT_EQ(report.steps, 23);
  EXPECT_EQ(report.skipped_steps, 1);
  EXPECT_EQ(report.samples, (SampleCount{360, 360, 0, 0})) << "its samples count as used";
  for (const double loss : report.loss_history) EXPECT_TRUE(std::isfinite(loss));
}

TEST_P(GuardedRun, SkipsASpikeBeforeItUpdatesAnything) {
  TrainerOptions options = this->options();
  options.guard = {.policy = "skip", .spike = 50, .window = 5};
  const Report report = fit(options, meddled({9}, 1e6), clouds(90));
  EXPECT_EQ(report.skipped_steps, 1);
  const Report usual = fit(this->options(), job(), clouds(90));
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(report.loss_history[i], usual.loss_history[i], 1e-9);
  for (const double loss : report.loss_history) EXPECT_LT(loss, 3);
}

TEST_P(GuardedRun, StopsAtASpikeNamingIt) {
  TrainerOptions options = this->options();
  options.guard = {.spike = 50, .window = 5};
  EXPECT_THAT(
      message_of(ErrorCode::internal, [&] { fit(options, meddled({9}, 1e6), clouds(90)); }),
      AllOf(HasSubstr("the loss of step 9 is"),
            HasSubstr("times the median of the last 5 steps; nothing was updated")));
}

// The cause of the bad loss is gone the second time, so the run ends like one
// that was never disturbed.
TEST_P(GuardedRun, RollsBackToTheNewestCheckpointAndContinues) {
  const tests::Folder folder;
  TrainerOptions options = this->options();
  options.guard.policy = "rollback";
  options.checkpoint = {.dir = folder.path() + "/checkpoint", .every_steps = 4};
  const auto log = std::filesystem::path(folder.path()) / "log.jsonl";
  options.sinks = {monitor::make_json_lines(log)};
  const Report report = fit(options, meddled({11}, kNan), clouds(90), clouds(30, 2));
  TrainerOptions plain = this->options();
  // The norm is computed, so that the same code runs.
  plain.guard.policy = "rollback";
  const Report usual = fit(plain, job(), clouds(90), clouds(30, 2));
  EXPECT_EQ(report.skipped_steps, 0);
  EXPECT_EQ(report.loss_history, usual.loss_history);
  EXPECT_EQ(report.parameters_sha256, usual.parameters_sha256);
  EXPECT_EQ(report.resumed_from_step, 0);
  EXPECT_EQ(report.samples, (SampleCount{360, 360, 0, 0}));

  const LedgerAudit audit = audit_logs(std::vector{log});
  EXPECT_TRUE(audit.passed()) << audit.describe();
  EXPECT_EQ(audit.samples, report.samples);
  EXPECT_EQ(audit.taken_back, 2) << "steps 9 and 10";
}

// The checkpoint was made before the first step, so all state that steps leave behind has to go.
class RolledBack : public GuardedRun {
 protected:
  static TrainerOptions after_one_save(TrainerOptions options, const std::string& folder) {
    options.guard.policy = "rollback";
    options.checkpoint.dir = folder;
    return options;
  }
  // Goes back at the tenth step, and expects the same end as in an undisturbed run.
  void expect_nothing_left(const TrainerOptions& options, const OptimizerFactory& optimizer,
                           const TrainerOptions& of_first_save) const {
    const tests::Folder folder, other;
    for (const tests::Folder* each : {&folder, &other}) {
      TrainerOptions first = after_one_save(of_first_save, each->path());
      first.steps = 0;
      fit(first, job(optimizer), clouds(90), clouds(30, 2));
    }
    const Report report = fit(after_one_save(options, folder.path()),
                              meddled({10}, kNan, optimizer), clouds(90), clouds(30, 2));
    const Report usual =
        fit(after_one_save(options, other.path()), job(optimizer), clouds(90), clouds(30, 2));
    EXPECT_EQ(report.skipped_steps, usual.skipped_steps);  // A loss scale may overflow.
    EXPECT_EQ(report.loss_history, usual.loss_history);
    EXPECT_EQ(report.parameters_sha256, usual.parameters_sha256);
    EXPECT_EQ(report.eval->loss, usual.eval->loss);
    EXPECT_EQ(report.loss_scale, usual.loss_scale);
    EXPECT_EQ(report.samples, usual.samples);
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, RolledBack, ::testing::Values(1, 3),
                         ::testing::PrintToStringParamName());

TEST_P(RolledBack, LeavesNoOptimizerStateThatTheCheckpointDoesNotHave) {
  const std::vector<OptimizerFactory> optimizers = {
      SGD{.lr = 0.1, .momentum = 0.9}, Adam{.lr = 0.01, .amsgrad = true},
      RMSprop{.momentum = 0.5, .centered = true}, Adagrad{}, Lamb{}};
  for (const bool share : {true, false})
    for (const OptimizerFactory& optimizer : optimizers) {
      TrainerOptions options = this->options();
      options.share_parameters = share;
      expect_nothing_left(options, optimizer, options);
    }
}

TEST_P(RolledBack, LeavesNoStateOfCompression) {
  for (const char* name : {"int8", "topk", "powersgd"}) {
    TrainerOptions options = this->options();
    options.compression.name = name;
    options.compression.ratio = 0.2;
    expect_nothing_left(options, Adam{.lr = 0.01}, this->options());
  }
}

TEST_P(RolledBack, LeavesNoLossScaleAndNoMasters) {
  TrainerOptions options = this->options();
  options.dtype = plan::DType::float16;
  options.loss_scaling = GradScalerOptions{.initial = 4096, .growth_interval = 3};
  expect_nothing_left(options, SGD{.lr = 0.1, .momentum = 0.9}, options);
}

TEST_P(RolledBack, LeavesNoAverages) {
  TrainerOptions options = this->options();
  options.ema_decay = 0.9;
  expect_nothing_left(options, SGD{.lr = 0.1, .momentum = 0.9}, this->options());
}

TEST_P(RolledBack, LeavesNoWindowsAndNoScheduleOfAnotherPast) {
  TrainerOptions options = this->options();
  options.guard = {.spike = 50, .window = 5};
  options.schedule = {.name = "cosine", .warmup_steps = 4};
  expect_nothing_left(options, SGD{.lr = 0.1, .momentum = 0.9}, options);
}

TEST_P(RolledBack, LeavesNoStateOfLocalSteps) {
  TrainerOptions options = this->options();
  options.local.steps = 4;
  expect_nothing_left(options, SGD{.lr = 0.1, .momentum = 0.9}, options);
}

TEST_P(GuardedRun, WithoutACheckpointThereIsNoWayBack) {
  TrainerOptions options = this->options();
  options.guard.policy = "rollback";
  EXPECT_THAT(
      message_of(ErrorCode::internal, [&] { fit(options, meddled({3}, kNan), clouds(90)); }),
      AllOf(HasSubstr("the loss of step 3 is NaN"), HasSubstr("no checkpoint to go back to"),
            HasSubstr("checkpoint.every")));
}

TEST_P(GuardedRun, AResumedRunContinuesItsLedger) {
  const tests::Folder folder;
  TrainerOptions options = this->options();
  options.checkpoint = {.dir = folder.path() + "/checkpoint", .every_steps = 5};
  const auto log = std::filesystem::path(folder.path()) / "log.jsonl";
  options.steps = 10;
  options.sinks = {monitor::make_json_lines(log)};
  EXPECT_EQ(fit(options, job(), clouds(90)).samples, (SampleCount{154, 154, 0, 0}));
  options.steps = 24;
  // The batch size changes from here on.
  options.batch = 10;
  options.sinks = {monitor::make_json_lines(log)};
  const Report report = fit(options, job(), clouds(90));
  EXPECT_EQ(report.resumed_from_step, 10);
  EXPECT_TRUE(report.samples.exactly_once());
  const LedgerAudit audit = audit_logs(std::vector{log});
  EXPECT_TRUE(audit.passed()) << audit.describe();
  EXPECT_EQ(audit.samples, report.samples);
  EXPECT_EQ(audit.continuations, 1);
}

TEST(CorruptedRun, IsFoundByComparingReplicas) {
  TrainerOptions options = tests::options(3);
  options.share_parameters = false;
  options.guard.check_replicas_every = 4;
  options.inject.faults = parse_faults("corrupt:rank=1,exchange@step=6");
  EXPECT_THAT(
      message_of(ErrorCode::corrupt, [&] { fit(options, job(), clouds(90)); }),
      AllOf(HasSubstr(
                "after step 8 the parameters of rank 1 differ from those of the other 2 replicas"),
            HasSubstr("is the first")));
}

TEST(CorruptedRun, GoesBackToTheNewestCheckpointIfToldTo) {
  const tests::Folder folder;
  TrainerOptions options = tests::options(3);
  options.share_parameters = false;
  options.guard = {.policy = "rollback", .check_replicas_every = 4};
  options.checkpoint = {.dir = folder.path() + "/checkpoint", .every_steps = 5};
  TrainerOptions undisturbed = options;
  undisturbed.checkpoint = {};
  options.inject = {parse_faults("corrupt:rank=1,exchange@step=6"), folder.path() + "/faults"};
  const Report report = fit(options, job(), clouds(90)),
               usual = fit(undisturbed, job(), clouds(90));
  EXPECT_EQ(report.parameters_sha256, usual.parameters_sha256);
  EXPECT_TRUE(report.samples.exactly_once());
}

TEST(FullDiskRun, EndsNamingTheDiskAndGoesThroughWhenStartedAgain) {
  const tests::Folder folder;
  TrainerOptions options = tests::options(2);
  options.checkpoint = {.dir = folder.path() + "/checkpoint", .every_steps = 3};
  // Otherwise the run may have saved again before it hears of the failure.
  options.checkpoint.background = false;
  options.inject = {parse_faults("disk-full@step=2"), folder.path() + "/faults"};
  EXPECT_THAT(message_of(ErrorCode::io, [&] { fit(options, job(), clouds(90)); }),
              HasSubstr("No space left on device"));
  // The fault has already struck.
  const Report report = fit(options, job(), clouds(90));
  EXPECT_EQ(report.resumed_from_step, 0) << "nothing had been saved";
  EXPECT_TRUE(report.samples.exactly_once());
}

}  // namespace
}  // namespace trireme::guarded_run_test
