// The same training under other strategies, and the reasons for which it ends early.
#include "jobs.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/train/evaluate.h>
#include <chrono>
#include <mutex>
#include <thread>

#include "../base/expect_error.h"

namespace trireme::trainer_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::clouds;
using tests::difference;
using tests::fit;
using tests::job;

TEST(Trainer, LearnsOnOneDevice) {
  TrainerOptions options = tests::options();
  options.epochs = 8;
  const Report report = fit(options, job(), clouds(90), clouds(60, 2));
  EXPECT_EQ(report.strategy, "one_device");
  EXPECT_EQ(report.steps, 8 * 6);
  EXPECT_EQ(report.epochs, 8);
  EXPECT_EQ(report.loss_history.size(), 48u);
  EXPECT_LT(report.loss_history.back(), 0.7 * report.loss_history.front());
  ASSERT_TRUE(report.eval);
  EXPECT_EQ(report.eval->samples, 60);
  EXPECT_GT(report.eval->accuracy, 0.6);
  EXPECT_EQ(report.parameters, 5 * 8 + 8 + 8 * 3 + 3);
  EXPECT_EQ(report.parameters_sha256.size(), 64u);
  EXPECT_GT(report.samples_per_second, 0);
  EXPECT_GT(report.cpu_seconds, 0);
  EXPECT_FALSE(report.stopped);
}

struct Variant {
  std::string name;
  std::function<void(TrainerOptions&)> change;
  OptimizerFactory optimizer = SGD{.lr = 0.1, .momentum = 0.9};
};
class SameTraining : public ::testing::TestWithParam<Variant> {
 protected:
  TrainerOptions options(int replicas) const {
    TrainerOptions options = tests::options(replicas);
    GetParam().change(options);
    return options;
  }
  Job the_job() const { return job(GetParam().optimizer); }
};
INSTANTIATE_TEST_SUITE_P(
    Options, SameTraining,
    ::testing::Values(Variant{"plain", [](TrainerOptions&) {}},
                      Variant{"adamw", [](TrainerOptions&) {}, AdamW{.lr = 0.01}},
                      Variant{"accumulate", [](TrainerOptions& o) { o.accumulate = 3; }},
                      Variant{"clipped", [](TrainerOptions& o) { o.clip_norm = 0.1; }},
                      Variant{"in_order", [](TrainerOptions& o) { o.shuffle = false; }},
                      Variant{"cosine",
                              [](TrainerOptions& o) {
                                o.schedule = {.name = "cosine", .warmup_steps = 3};
                              }},
                      Variant{"few_steps", [](TrainerOptions& o) { o.steps = 3; }}),
    [](const auto& each) { return each.param.name; });

// 90 samples in batches of 16: the last batch has 10, which neither 3 nor 4 replicas divide.
TEST_P(SameTraining, OnThreads) {
  const Report reference = fit(options(1), the_job(), clouds(90), clouds(31, 2));
  for (const int replicas : {2, 3, 4}) {
    const Report report = fit(options(replicas), the_job(), clouds(90), clouds(31, 2));
    EXPECT_EQ(report.strategy, "mirrored");
    EXPECT_EQ(report.world_size, replicas);
    EXPECT_EQ(report.steps, reference.steps);
    EXPECT_LT(difference(report.loss_history, reference.loss_history), 1e-10);
    EXPECT_NEAR(report.eval->loss, reference.eval->loss, 1e-10);
    EXPECT_EQ(report.eval->accuracy, reference.eval->accuracy);
    EXPECT_NEAR(report.train_loss, reference.train_loss, 1e-10);
  }
}

TEST_P(SameTraining, TwiceIsTheSameBits) {
  const Report first = fit(options(2), the_job(), clouds(90)),
               second = fit(options(2), the_job(), clouds(90));
  EXPECT_EQ(first.parameters_sha256, second.parameters_sha256);
  EXPECT_EQ(first.loss_history, second.loss_history);
}

TEST_P(SameTraining, OnProcesses) {
  const Report reference = fit(options(1), the_job(), clouds(90), clouds(31, 2));
  for (const auto& [count, replicas] : {std::pair{2, 1}, {3, 1}, {2, 2}}) {
    tests::Workers workers(count);
    workers.on_each([&, each = replicas](World& world) {
      const Report report =
          Trainer(world, options(each)).fit(the_job(), clouds(90), clouds(31, 2));
      if (world.worker() != 0) return;
      EXPECT_EQ(report.strategy, "multi_worker");
      EXPECT_EQ(report.workers, world.workers());
      EXPECT_LT(difference(report.loss_history, reference.loss_history), 1e-10);
      EXPECT_NEAR(report.eval->loss, reference.eval->loss, 1e-10);
    });
    workers.leave();
  }
}

TEST(Trainer, DropoutIsRepeatableOnThreads) {
  const auto run = [](int replicas) {
    return fit(tests::options(replicas), job<tests::DropoutClassifier>(), clouds(90));
  };
  EXPECT_EQ(run(3).parameters_sha256, run(3).parameters_sha256);
  EXPECT_NE(run(1).parameters_sha256, run(2).parameters_sha256) << "each replica draws its own";
}

TEST(Trainer, AnotherSeedIsAnotherTraining) {
  TrainerOptions other = tests::options();
  other.seed = 2;
  EXPECT_NE(fit(tests::options(), job(), clouds(40)).parameters_sha256,
            fit(other, job(), clouds(40)).parameters_sha256);
}

// Records the calls, by rank.
class Listener : public Callback {
 public:
  void on_fit_start(TrainContext& context) override { note(context, "start"); }
  void on_step(TrainContext& context, const monitor::StepRecord& record) override {
    note(context, fmt::format("step {}", record.step));
    if (record.step == stop_after && context.rank == context.world_size - 1) context.stop = true;
  }
  void on_epoch_end(TrainContext& context, int64_t epoch) override {
    note(context, fmt::format("epoch {}", epoch));
  }
  void on_evaluate(TrainContext& context, const monitor::EvalRecord& record) override {
    note(context, fmt::format("evaluate {}", record.step));
  }
  void on_checkpoint(TrainContext& context, const std::string& path) override {
    note(context, "checkpoint");
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  void on_fit_end(TrainContext& context) override { note(context, "end"); }

  std::map<int, std::vector<std::string>> calls;
  int64_t stop_after = -1;

 private:
  void note(const TrainContext& context, const std::string& call) {
    const std::lock_guard lock(mutex_);
    calls[context.rank].push_back(call);
  }
  std::mutex mutex_;
};

TEST(TrainerCallbacks, AreCalledAtTheSamePointsOnEveryRank) {
  const tests::Folder folder;
  TrainerOptions options = tests::options(2);
  options.checkpoint.dir = folder.path();
  const auto listener = std::make_shared<Listener>();
  options.callbacks = {listener};
  fit(options, job(), clouds(32), clouds(8, 2));
  EXPECT_THAT(listener->calls[1], ElementsAre("start", "step 1", "step 2", "epoch 0", "evaluate 2",
                                              "step 3", "step 4", "epoch 1", "evaluate 4", "end"));
  EXPECT_THAT(listener->calls[0],
              ElementsAre("start", "step 1", "step 2", "epoch 0", "evaluate 2", "step 3", "step 4",
                          "epoch 1", "checkpoint", "evaluate 4", "end"));
}

TEST(TrainerCallbacks, OneRanksWishToStopStopsAllAfterTheNextStep) {
  for (const int replicas : {1, 2, 3}) {
    TrainerOptions options = tests::options(replicas);
    const auto listener = std::make_shared<Listener>();
    listener->stop_after = 3;
    options.callbacks = {listener};
    const Report report = fit(options, job(), clouds(90));
    EXPECT_TRUE(report.stopped);
    EXPECT_EQ(report.steps, 4);
    for (auto& [rank, calls] : listener->calls)
      EXPECT_EQ(calls[calls.size() - 2], "step 4") << rank;
  }
}

TEST(TrainerCallbacks, AWriteToSharedParametersDoesNotGetIntoACheckpoint) {
  class Writer : public Callback {
    void on_step(TrainContext& context, const monitor::StepRecord& record) override {
      if (record.step == 4 && context.rank == 0) context.module.parameters()[0].data().mul_(0.5);
    }
  };
  const tests::Folder folder;
  TrainerOptions options = tests::options(2);
  options.steps = 8;
  options.checkpoint = {.dir = folder.path(), .every_steps = 2};
  options.checkpoint.background = false;
  options.callbacks = {std::make_shared<Writer>()};
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { fit(options, job(), clouds(90)); }),
              AllOf(HasSubstr("parameter 'in.weight' was written in place"),
                    HasSubstr("modify_parameters")));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/step-000000002"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/step-000000004"));
}

class Told : public monitor::Sink {
 public:
  void on_start(const monitor::RunStart& start) override { starts.push_back(start); }
  void on_step(const monitor::StepRecord& record) override { steps.push_back(record); }
  void on_eval(const monitor::EvalRecord& record) override { evals.push_back(record); }
  void on_scalars(const monitor::ScalarRecord& record) override { scalars.push_back(record); }
  void on_message(const std::string& text) override { messages.push_back(text); }
  std::vector<monitor::RunStart> starts;
  std::vector<monitor::StepRecord> steps;
  std::vector<monitor::EvalRecord> evals;
  std::vector<monitor::ScalarRecord> scalars;
  std::vector<std::string> messages;
};

TEST(TrainerSinks, HearOfEachStepOnce) {
  TrainerOptions options = tests::options(3);
  options.clip_norm = 5;
  options.schedule = {.name = "step", .gamma = 0.5};
  options.schedule_every_epochs = 1;
  const auto told = std::make_shared<Told>();
  options.sinks = {told};
  fit(options, job(), clouds(40), clouds(10, 2));  // 3 steps an epoch.
  ASSERT_EQ(told->starts.size(), 1u);
  EXPECT_EQ(told->starts[0].total_steps, 6);
  EXPECT_EQ(told->starts[0].steps_per_epoch, 3);
  EXPECT_EQ(told->starts[0].world_size, 3);
  ASSERT_EQ(told->steps.size(), 6u);
  EXPECT_EQ(told->steps[2].samples, 8);
  EXPECT_DOUBLE_EQ(told->steps[2].learning_rate, 0.1);
  EXPECT_DOUBLE_EQ(told->steps[3].learning_rate, 0.05);
  EXPECT_EQ(told->steps[3].epoch, 1);
  EXPECT_GT(told->steps[0].gradient_norm, 0);
  EXPECT_EQ(told->evals.size(), 2u);
}

// A source that is much slower than the training.
class SlowClouds : public TensorSource {
 public:
  using TensorSource::TensorSource;
  Example get_batch(const Draws& draws) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    return TensorSource::get_batch(draws);
  }
};

TEST(TrainerSinks, HearOfTheWaitsForDataAndOfWhatTheInputWasTunedTo) {
  TrainerOptions options = tests::options();
  options.steps = 16;
  options.input_bytes = 1;  // No further batch fits, so the tuner settles with its first window.
  const auto told = std::make_shared<Told>();
  options.sinks = {told};
  std::vector<int64_t> numbers(32);
  std::iota(numbers.begin(), numbers.end(), 0);
  const Example all = clouds(32)->get_batch(numbers);
  fit(options, job(), std::make_shared<SlowClouds>(all.data, all.target));
  double waited = 0, seconds = 0;
  for (const monitor::StepRecord& step : told->steps)
    waited += step.waited, seconds += step.seconds;
  EXPECT_GT(waited, 0.5 * seconds);
  EXPECT_LE(waited, seconds);
  ASSERT_EQ(told->scalars.size(), 1u);
  EXPECT_EQ(told->scalars[0].values,
            (std::map<std::string, double>{{"input/threads", 1}, {"input/prefetch", 1}}));
  EXPECT_THAT(told->messages,
              testing::Contains(HasSubstr("input: tuned to data.threads=1 data.prefetch=1")));
}

TEST(TrainerBatchNorm, RunsOnReplicasAndEvaluatesRankZerosStatistics) {
  const tests::Folder folder;
  TrainerOptions options = tests::options(3);
  options.checkpoint.dir = folder.path();
  const auto test = clouds(30, 2);
  const Report report = fit(options, job<tests::NormClassifier>(), clouds(96), test);
  // The saved state is the state that was evaluated: loaded on one device without another step, it
  // gives the same result.
  TrainerOptions again = tests::options(1);
  again.checkpoint.dir = folder.path();
  const Report alone = fit(again, job<tests::NormClassifier>(), clouds(96), test);
  EXPECT_EQ(alone.resumed_from_step, report.steps);
  EXPECT_EQ(alone.steps, report.steps);
  EXPECT_NEAR(alone.eval->loss, report.eval->loss, 1e-12);
  EXPECT_EQ(alone.parameters_sha256, report.parameters_sha256);
}

TEST(TrainerErrors, ANaNLossNamesStepAndRank) {
  for (const int replicas : {1, 3}) {
    auto bad = std::dynamic_pointer_cast<TensorSource>(clouds(48));
    TrainerOptions options = tests::options(replicas);
    options.shuffle = false;
    Job the_job = job();
    // Samples 32..47 are the third batch; its last share contains the bad sample.
    std::vector<int64_t> all(48);
    std::iota(all.begin(), all.end(), 0);
    Example whole = bad->get_batch(all);
    whole.data[47][0] = std::nan("");
    const auto source = std::make_shared<TensorSource>(whole.data, whole.target);
    EXPECT_THAT(message_of(ErrorCode::internal, [&] { fit(options, the_job, source); }),
                AllOf(HasSubstr("step 3"), HasSubstr(fmt::format("on rank {}", replicas - 1)),
                      HasSubstr("NaN")));
  }
}

class ThrowingSource : public Source {
 public:
  int64_t size() const override { return 90; }
  Example get(const Draw& draw) const override {
    const int64_t index = draw.index;
    if (index == 77) throw std::runtime_error("file 77 is gone");
    return {at::ones({5}), at::zeros({}, at::kLong)};
  }
};
TEST(TrainerErrors, OfAUsersSourceComeOutAsTheyAre) {
  for (const int replicas : {1, 2, 3}) {
    for (const int loader_threads : {0, 1}) {
      TrainerOptions options = tests::options(replicas);
      options.loader_threads = loader_threads;
      try {
        fit(options, job(), std::make_shared<ThrowingSource>());
        FAIL() << "nothing was thrown";
      } catch (const std::exception& error) {
        EXPECT_STREQ(error.what(), "file 77 is gone");
      }
    }
  }
}

TEST(TrainerErrors, OfAUsersModelComeOutAsTheyAre) {
  Job broken = job();
  std::atomic<int> made{0};
  broken.model = [&]() -> Model {
    if (++made == 2) throw std::runtime_error("no such layer");
    return model_factory<tests::Classifier>()();
  };
  try {
    fit(tests::options(3), broken, clouds(40));
    FAIL() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "no such layer");
  }
}

// A worker that fails leaves without a farewell message, like a process that ends.
TEST(TrainerErrors, AWorkersFailureEndsTheOthersInPeerLost) {
  tests::Workers workers(2);
  std::vector<std::string> codes(2);
  workers.on_each([&](World& world) {
    try {
      Job the_job = job();
      if (world.worker() == 1)
        the_job.loss = [](const at::Tensor&, const at::Tensor&) -> at::Tensor {
          throw std::runtime_error("out of memory");
        };
      Trainer(world, tests::options()).fit(the_job, clouds(90));
    } catch (const Error& error) {
      codes[static_cast<size_t>(world.worker())] = to_string(error.code());
    } catch (const std::exception& error) {
      codes[static_cast<size_t>(world.worker())] = error.what();
      workers.vanish(1);
    }
  });
  EXPECT_THAT(codes, ElementsAre("peer_lost", "out of memory"));
}

TEST(TrainerOptionsCheck, RefusesStrategiesThatContradictThePlaces) {
  World world = tests::alone();
  const auto refusal = [&](const std::function<void(TrainerOptions&)>& change) {
    TrainerOptions options = tests::options();
    change(options);
    return message_of(ErrorCode::invalid_argument, [&] { Trainer(world, options); });
  };
  EXPECT_THAT(refusal([](auto& o) { o.strategy = "one_device", o.replicas = 2; }),
              AllOf(HasSubstr("one_device"), HasSubstr("mirrored")));
  EXPECT_THAT(refusal([](auto& o) { o.strategy = "telepathy"; }),
              AllOf(HasSubstr("telepathy"), HasSubstr("multi_worker")));
  EXPECT_THAT(refusal([](auto& o) { o.replicas = 0; }), HasSubstr("strategy.replicas is \"0\""));
  EXPECT_THAT(refusal([](auto& o) { o.batch = -1; }), HasSubstr("data.batch is \"-1\""));
  EXPECT_THAT(refusal([](auto& o) { o.batch = 0; }), HasSubstr("data.batch is auto"));
  EXPECT_THAT(refusal([](auto& o) { o.epochs = -2; }), HasSubstr("train.epochs is \"-2\""));
  EXPECT_THAT(refusal([](auto& o) { o.accumulate = -1; }),
              HasSubstr("train.accumulate is \"-1\""));
  EXPECT_THAT(refusal([](auto& o) { o.clip_norm = -1; }), HasSubstr("train.clip_norm is \"-1\""));
  EXPECT_THAT(refusal([](auto& o) { o.threads = -1; }), HasSubstr("device.threads is \"-1\""));
  EXPECT_THAT(refusal([](auto& o) { o.schedule.name = "linear"; }), HasSubstr("linear"));
  EXPECT_THAT(refusal([](auto& o) { o.checkpoint.keep = 0; }),
              HasSubstr("checkpoint.keep is \"0\""));
}

TEST(TrainerOptionsCheck, OneDeviceAndMirroredAreNotForSeveralWorkers) {
  tests::Workers workers(2);
  for (const std::string strategy : {"one_device", "mirrored"}) {
    TrainerOptions options = tests::options();
    options.strategy = strategy;
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { Trainer(workers[0], options); }),
                AllOf(HasSubstr(strategy), HasSubstr("2 workers"), HasSubstr("multi_worker")));
  }
}

TEST(TrainerOptionsCheck, ABatchSmallerThanTheReplicasIsRefused) {
  TrainerOptions options = tests::options(4);
  options.batch = 3;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { fit(options, job(), clouds(90)); }),
              AllOf(HasSubstr("data.batch is 3"), HasSubstr("4 replicas")));
}

TEST(TrainerOptionsCheck, AJobNeedsSamplesAndAModel) {
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [] { fit(tests::options(), job(), nullptr); }),
      HasSubstr("empty"));
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [] { fit(tests::options(), Job{}, clouds(10)); }),
      HasSubstr("no model"));
}

TEST(TrainerOptionsCheck, WorkersWithDifferentJobsAreToldTheDifference) {
  tests::Workers workers(2);
  workers.on_each([](World& world) {
    TrainerOptions options = tests::options();
    options.seed = 1 + static_cast<uint64_t>(world.worker());
    EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                           [&] { Trainer(world, options).fit(job(), clouds(90)); }),
                HasSubstr("seed"));
  });
}

}  // namespace
}  // namespace trireme::trainer_test
