// Precision, averages, batch norm over all replicas, compression and local steps in the Trainer:
// how it runs, saves and resumes them.
#include "jobs.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/checkpoint/folder.h>
#include <atomic>
#include <mutex>

#include "../base/expect_error.h"

namespace trireme::numerics_test {
namespace {

using ::testing::HasSubstr;
using tests::clouds;
using tests::difference;
using tests::fit;
using tests::Folder;
using tests::job;

// Each sample has two values per channel, because torch::nn then accepts a
// share of one sample too.
struct PairNormClassifier : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    return out(at::tanh(norm(in(x).view({-1, 4, 2})).flatten(1)));
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(5, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(8, 3));
};

TrainerOptions float_options(int replicas = 1) {
  TrainerOptions options = tests::options(replicas);
  options.dtype = plan::DType::float32;
  return options;
}

// Records rank 0's learning rates.
class Rates : public Callback {
 public:
  void on_step(TrainContext& context, const monitor::StepRecord& record) override {
    if (context.rank == 0) rates.push_back(record.learning_rate);
  }
  std::vector<double> rates;
};

class Lines : public monitor::Sink {
 public:
  void on_message(const std::string& line) override { lines.push_back(line); }
  std::vector<std::string> lines;
};

TEST(TrainerBatchNorm, OverAllReplicasGivesTheLossesOfOneDevice) {
  for (const plan::DType dtype : {plan::DType::float64, plan::DType::float32}) {
    TrainerOptions options = tests::options();
    options.dtype = dtype;
    const auto the_job = job<PairNormClassifier>();
    // 34 samples in batches of 16: the last batch has 2 samples, so the third and
    // fourth replica get none.
    const Report reference = fit(options, the_job, clouds(34), clouds(30, 2));
    options.sync_batch_norm = true;
    for (const int replicas : {2, 3, 4}) {
      options.replicas = replicas;
      const Report report = fit(options, the_job, clouds(34), clouds(30, 2));
      EXPECT_LT(difference(report.loss_history, reference.loss_history),
                dtype == plan::DType::float64 ? 1e-10 : 1e-5)
          << replicas;
      EXPECT_NEAR(report.eval->loss, reference.eval->loss,
                  dtype == plan::DType::float64 ? 1e-10 : 1e-5)
          << "running statistics";
    }
    options.sync_batch_norm = false;
    options.replicas = 2;
    EXPECT_GT(difference(fit(options, the_job, clouds(34)).loss_history, reference.loss_history),
              1e-4)
        << "each its own samples";
  }
}

TEST(TrainerBatchNorm, OverAllReplicasWorksOnProcesses) {
  TrainerOptions options = tests::options();
  options.sync_batch_norm = true;
  const Report reference = fit(options, job<PairNormClassifier>(), clouds(34));
  tests::Workers workers(3);
  workers.on_each([&](World& world) {
    const Report report = Trainer(world, options).fit(job<PairNormClassifier>(), clouds(34));
    if (world.worker() == 0) {
      EXPECT_LT(difference(report.loss_history, reference.loss_history), 1e-10);
    }
  });
  workers.leave();
}

TEST(TrainerPrecision, BfloatAutocastTrainsNearlyAlikeAndRepeatably) {
  TrainerOptions options = float_options();
  options.epochs = 4;
  const Report plain = fit(options, job(), clouds(90), clouds(60, 2));
  options.autocast = plan::DType::bfloat16;
  const Report mixed = fit(options, job(), clouds(90), clouds(60, 2));
  EXPECT_LT(difference(mixed.loss_history, plain.loss_history), 3e-2);
  EXPECT_GT(difference(mixed.loss_history, plain.loss_history), 1e-6);
  EXPECT_NEAR(mixed.eval->loss, plain.eval->loss, 3e-2);
  EXPECT_EQ(mixed.precision, "bfloat16, parameters float32");
  EXPECT_EQ(mixed.loss_scale, 1);
  options.replicas = 3;
  const Report threads = fit(options, job(), clouds(90)), again = fit(options, job(), clouds(90));
  EXPECT_LT(difference(threads.loss_history, mixed.loss_history), 3e-2);
  EXPECT_EQ(threads.parameters_sha256, again.parameters_sha256);
}

TEST(TrainerPrecision, SixteenBitParametersHaveMastersThatAreSaved) {
  for (const plan::DType dtype : {plan::DType::bfloat16, plan::DType::float16}) {
    TrainerOptions options = float_options(2);
    options.steps = 12;
    const auto the_job = job<tests::NormClassifier>(Adam{.lr = 0.003});
    const Report plain = fit(options, the_job, clouds(90));
    options.dtype = dtype;
    const Folder whole_folder, folder;
    options.checkpoint.dir = whole_folder.path();
    const Report whole = fit(options, the_job, clouds(90));
    EXPECT_LT(difference(whole.loss_history, plain.loss_history), 0.1);
    options.checkpoint.dir = folder.path();
    options.steps = 5;
    fit(options, the_job, clouds(90));
    options.steps = 12;
    const Report resumed = fit(options, the_job, clouds(90));
    EXPECT_EQ(resumed.resumed_from_step, 5);
    EXPECT_EQ(resumed.parameters_sha256, whole.parameters_sha256);
    EXPECT_EQ(resumed.loss_history, whole.loss_history);
    const auto saved = checkpoint::newest_in(folder.path());
    EXPECT_EQ(saved->model->find("in.weight")->spec.dtype, dtype);
    EXPECT_EQ(saved->model->find("norm.weight")->spec.dtype, plan::DType::float32)
        << "batch norms stay float32";
    EXPECT_EQ(saved->optimizer->find("engine/master/in.weight")->spec.dtype, plan::DType::float32);
    EXPECT_EQ(saved->optimizer->find("exp_avg/in.weight")->spec.dtype, plan::DType::float32);
  }
}

// A job whose gradients, times a loss scale of 65536, overflow on one replica when it
// computes its fourth loss.
Job overflowing_job(std::shared_ptr<std::atomic<int>> calls, int replicas) {
  Job made = job();
  made.loss = [calls, replicas](const at::Tensor& output, const at::Tensor& target) {
    const at::Tensor loss = at::cross_entropy_loss(output.to(at::kFloat), target);
    return output.requires_grad() && calls->fetch_add(1) == 4 * replicas ? loss * 1e36 : loss;
  };
  return made;
}

TEST(TrainerLossScaling, AStepThatOverflowsOnOneReplicaIsNoStepAnywhere) {
  for (const int replicas : {1, 3}) {
    TrainerOptions options = float_options(replicas);
    options.epochs = 2;
    options.autocast = plan::DType::float16;
    options.ema_decay = 0.9;
    options.schedule = {.name = "cosine", .warmup_steps = 3};
    const auto rates = std::make_shared<Rates>();
    const auto lines = std::make_shared<Lines>();
    options.callbacks = {rates};
    options.sinks = {lines};
    const Report report =
        fit(options, overflowing_job(std::make_shared<std::atomic<int>>(0), replicas), clouds(90));
    EXPECT_EQ(report.skipped_steps, 1);
    EXPECT_EQ(report.loss_scale, 32768);
    EXPECT_EQ(report.epochs, 2) << "its data is used";
    EXPECT_EQ(report.steps, 11);
    EXPECT_EQ(report.loss_history.size(), 11u);
    for (const double loss : report.loss_history) EXPECT_LT(loss, 10);
    ASSERT_EQ(rates->rates.size(), 11u);
    const ScheduleOptions schedule{.name = "cosine", .warmup_steps = 3, .total_steps = 12};
    for (int64_t step = 0; step < 11; ++step)
      EXPECT_DOUBLE_EQ(rates->rates[step], 0.1 * rate_factor(schedule, step)) << "held back too";
    EXPECT_THAT(lines->lines, ::testing::Contains(HasSubstr("loss scale now 32768")));
  }
}

TEST(TrainerLossScaling, ByStepsTakesAsManyUpdatesAsWereAskedFor) {
  TrainerOptions options = float_options(2);
  options.steps = 9;
  options.loss_scaling.emplace();
  const Report report =
      fit(options, overflowing_job(std::make_shared<std::atomic<int>>(0), 2), clouds(90));
  EXPECT_EQ(report.steps, 9);
  EXPECT_EQ(report.skipped_steps, 1);
}

TEST(TrainerLossScaling, ContinuesWithTheSavedScale) {
  TrainerOptions options = float_options(2);
  options.autocast = plan::DType::float16;
  options.loss_scaling = GradScalerOptions{.initial = 16, .growth_interval = 3};
  const Folder undisturbed, interrupted;
  const auto run = [&](const Folder& folder, int64_t steps) {
    options.checkpoint.dir = folder.path();
    options.steps = steps;
    return fit(options, job(), clouds(90));
  };
  const Report whole = run(undisturbed, 10);
  run(interrupted, 4);
  const Report resumed = run(interrupted, 10);
  EXPECT_EQ(whole.loss_scale, 128);
  EXPECT_EQ(resumed.loss_scale, 128);
  EXPECT_EQ(resumed.parameters_sha256, whole.parameters_sha256);
}

TEST(TrainerLossScaling, EndsARunThatOverflowsForEver) {
  TrainerOptions options = float_options();
  options.loss_scaling.emplace();
  options.steps = 1000;
  Job made = job();
  made.loss = [](const at::Tensor& output, const at::Tensor& target) {
    const at::Tensor loss = at::cross_entropy_loss(output, target);
    // The loss is finite, but its gradient is not.
    return loss + (output * 0).sqrt().sum() * 0.0;
  };
  EXPECT_THAT(message_of(ErrorCode::internal, [&] { fit(options, made, clouds(90)); }),
              ::testing::AllOf(HasSubstr("loss scale"), HasSubstr("optimizer.lr")));
}

TEST(TrainerAverage, IsEvaluatedAndContinuesBitForBit) {
  TrainerOptions options = tests::options(2);
  const auto run = [&](const Folder& folder, int64_t steps) {
    options.checkpoint.dir = folder.path();
    options.steps = steps;
    return fit(options, job(), clouds(90), clouds(60, 2));
  };
  const Folder plain_folder, undisturbed, interrupted;
  const Report plain = run(plain_folder, 12);
  options.ema_decay = 0.8;
  const Report whole = run(undisturbed, 12);
  EXPECT_EQ(whole.loss_history, plain.loss_history) << "training itself is the same";
  EXPECT_EQ(whole.parameters_sha256, plain.parameters_sha256)
      << "and the parameters are not the averages";
  EXPECT_GT(std::abs(whole.eval->loss - plain.eval->loss), 1e-6);
  run(interrupted, 5);
  const Report resumed = run(interrupted, 12);
  EXPECT_EQ(resumed.eval->loss, whole.eval->loss);
  EXPECT_NE(checkpoint::newest_in(interrupted.path())->optimizer->find("engine/ema/in.weight"),
            nullptr);
  // A run without an average starts it where it resumes.
  options.ema_decay = 0;
  const Folder late;
  run(late, 12);
  options.ema_decay = 0.8;
  options.steps = 12;
  EXPECT_NEAR(fit(options, job(), clouds(90), clouds(60, 2)).eval->loss, plain.eval->loss, 1e-12);
}

class Compressed : public ::testing::TestWithParam<std::string> {
 protected:
  TrainerOptions options(int replicas) const {
    TrainerOptions options = float_options(replicas);
    options.compression = {.name = GetParam(), .rank = 1, .ratio = 0.2};
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Methods, Compressed,
                         ::testing::Values("bf16", "fp16", "int8", "topk", "powersgd"),
                         [](const auto& each) { return each.param; });

TEST_P(Compressed, ContinuesBitForBitWithItsErrors) {
  TrainerOptions run_options = options(3);
  const auto run = [&](const Folder& folder, int64_t steps) {
    run_options.checkpoint.dir = folder.path();
    run_options.steps = steps;
    return fit(run_options, job(), clouds(90), clouds(60, 2));
  };
  const Folder undisturbed, interrupted;
  const Report whole = run(undisturbed, 12);
  run(interrupted, 5);
  const Report resumed = run(interrupted, 12);
  EXPECT_EQ(resumed.loss_history, whole.loss_history);
  EXPECT_EQ(resumed.parameters_sha256, whole.parameters_sha256);
  EXPECT_EQ(whole.compression, GetParam());
  EXPECT_GT(whole.exchange_bytes_per_step, 0);
  // With another number of replicas, or one, the errors of compression are divided among them, and
  // training continues.
  for (const int replicas : {2, 1}) {
    run_options.replicas = replicas;
    const Report other = run(interrupted, replicas == 2 ? 15 : 18);
    EXPECT_EQ(other.resumed_from_step, replicas == 2 ? 12 : 15);
    EXPECT_LT(other.loss_history.back(), whole.loss_history.front());
  }
}

TEST_P(Compressed, TrainsLikeThreadsOnProcesses) {
  const Report threads = fit(options(2), job(), clouds(90));
  tests::Workers workers(2);
  workers.on_each([&](World& world) {
    const Report report = Trainer(world, options(1)).fit(job(), clouds(90));
    if (world.worker() == 0) {
      EXPECT_LT(difference(report.loss_history, threads.loss_history), 1e-4);
    }
  });
  workers.leave();
}

TEST(TrainerLocalSteps, EndAndSaveAfterAnAveraging) {
  TrainerOptions options = tests::options(3);
  const auto lines = std::make_shared<Lines>();
  options.sinks = {lines};
  const auto run = [&](const Folder& folder, int64_t steps) {
    options.checkpoint.dir = folder.path();
    options.steps = steps;
    return fit(options, job(), clouds(90), clouds(60, 2));
  };
  const Folder plain_folder, undisturbed, interrupted;
  // Replicas that share memory send nothing.
  options.share_parameters = false;
  const Report plain = run(plain_folder, 12);
  options.local = {.steps = 4, .after = 2};
  const Report whole = run(undisturbed, 12);
  EXPECT_EQ(whole.local_steps, 4);
  EXPECT_EQ(whole.loss_history[1], plain.loss_history[1]) << "together until the second step";
  EXPECT_NE(whole.loss_history[4], plain.loss_history[4]);
  EXPECT_LT(whole.loss_history.back(), whole.loss_history.front());
  EXPECT_LT(whole.exchange_bytes_per_step, plain.exchange_bytes_per_step);
  EXPECT_THAT(lines->lines,
              ::testing::Contains(HasSubstr("averaged every 4 steps, after step 2")));
  // 2 + 4: an averaging is due at this step anyway.
  run(interrupted, 6);
  const Report resumed = run(interrupted, 12);
  EXPECT_EQ(resumed.resumed_from_step, 6);
  EXPECT_EQ(resumed.loss_history.size(), 12u);
  EXPECT_LT(difference(std::vector(resumed.loss_history.begin(), resumed.loss_history.begin() + 7),
                       std::vector(whole.loss_history.begin(), whole.loss_history.begin() + 7)),
            1e-12);
}

TEST(TrainerLocalSteps, AreTheSameOnThreadsAndProcesses) {
  TrainerOptions options = tests::options(2);
  options.local = {.steps = 3, .momentum = true};
  const Report threads = fit(options, job(), clouds(90), clouds(60, 2));
  options.replicas = 1;
  tests::Workers workers(2);
  workers.on_each([&](World& world) {
    const Report report = Trainer(world, options).fit(job(), clouds(90), clouds(60, 2));
    if (world.worker() > 0) return;
    EXPECT_LT(difference(report.loss_history, threads.loss_history), 1e-10);
    EXPECT_NEAR(report.eval->loss, threads.eval->loss, 1e-10);
  });
  workers.leave();
}

TEST(TrainerRate, FollowsTheBatchByTheRuleAndReportsIt) {
  TrainerOptions options = tests::options();
  const Report doubled = fit(options, job(SGD{.lr = 0.2}), clouds(90));
  const auto lines = std::make_shared<Lines>();
  options.sinks = {lines};
  options.rate_scaling = {.rule = "linear", .base_batch = 8};
  options.schedule.warmup_steps = 0;
  const Report linear = fit(options, job(SGD{.lr = 0.1}), clouds(90));
  EXPECT_EQ(linear.loss_history, doubled.loss_history);
  EXPECT_EQ(linear.learning_rate_scale, 2);
  EXPECT_THAT(lines->lines,
              ::testing::Contains("learning rate 0.2 = 0.1 x 2 (linear: batch 16 against 8)"));
  options.rate_scaling = {.rule = "sqrt", .base_batch = 4};
  EXPECT_EQ(fit(options, job(SGD{.lr = 0.1}), clouds(90)).loss_history, doubled.loss_history);
}

TEST(TrainerNumericsOptions, AreRefusedBeforeAnythingConnects) {
  const auto refused = [](const std::function<void(TrainerOptions&)>& change,
                          const std::string& part) {
    TrainerOptions options = tests::options();
    change(options);
    World world = tests::alone();
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { Trainer(world, options); }),
                HasSubstr(part));
  };
  // The test's dtype is float64.
  refused([](TrainerOptions& o) { o.autocast = plan::DType::bfloat16; }, "train.dtype");
  refused([](TrainerOptions& o) { o.dtype = plan::DType::int32; }, "train.dtype");
  refused([](TrainerOptions& o) { o.ema_decay = 1; }, "decay");
  refused([](TrainerOptions& o) { o.compression.name = "zip"; }, "strategy.compression");
  refused([](TrainerOptions& o) { o.local.steps = 0; }, "strategy.local_steps");
  refused([](TrainerOptions& o) { o.local.steps = 4, o.compression.name = "int8"; },
          "one of them");
  refused([](TrainerOptions& o) { o.rate_scaling.rule = "cubic"; }, "optimizer.scale_lr");
  refused([](TrainerOptions& o) { o.rate_scaling.rule = "linear"; }, "optimizer.base_batch");
  refused([](TrainerOptions& o) { o.rate_scaling.base_batch = 4; }, "optimizer.scale_lr");
}

}  // namespace
}  // namespace trireme::numerics_test
