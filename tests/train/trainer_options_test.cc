// The values of its options that a Trainer takes, and how it names those that it refuses.
#include "jobs.h"

#include <trireme/data/mixture_source.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <limits>

#include "../base/expect_error.h"

namespace trireme::trainer_options_test {
namespace {

using ::testing::HasSubstr;
using tests::clouds;
using tests::fit;
using tests::job;

std::string refusal(const TrainerOptions& options) {
  return message_of(ErrorCode::invalid_argument, [&] { check(options); });
}

TEST(OptionsOfATrainer, TakeEverySeed) {
  for (const uint64_t seed :
       {uint64_t{0}, uint64_t{0x9E3779B97F4A7C15}, std::numeric_limits<uint64_t>::max()}) {
    TrainerOptions options = tests::options();
    options.seed = seed;
    options.steps = 2;
    EXPECT_EQ(fit(options, job(), clouds(40)).steps, 2) << seed;
  }
}

TEST(OptionsOfATrainer, TakeEveryBatchAndNormThatTheCodeBelowTakes) {
  TrainerOptions options = tests::options();
  options.steps = 4;
  const Report usual = fit(options, job(), clouds(40));
  options.epochs = 0;  // The steps decide.
  options.prefetch = 0;
  options.clip_norm = std::numeric_limits<double>::infinity();
  const Report report = fit(options, job(), clouds(40));
  EXPECT_EQ(report.loss_history, usual.loss_history);
  EXPECT_EQ(report.parameters_sha256, usual.parameters_sha256);
}

TEST(OptionsOfATrainer, WithNoEpochTrainNothing) {
  TrainerOptions options = tests::options();
  options.epochs = 0;
  EXPECT_EQ(fit(options, job(), clouds(40)).steps, 0);
}

TEST(OptionsOfATrainer, RefuseValuesThatNoRowAllows) {
  EXPECT_THAT(refusal({.clip_norm = -1}), HasSubstr("train.clip_norm is \"-1\""));
  EXPECT_THAT(refusal({.clip_norm = std::nan("")}), HasSubstr("train.clip_norm is \"nan\""));
  EXPECT_THAT(refusal({.epochs = -2}), HasSubstr("train.epochs is \"-2\""));
  EXPECT_THAT(refusal({.prefetch = -2}), HasSubstr("data.prefetch is \"-2\""));
  EXPECT_THAT(refusal({.dtype = plan::DType::int64}), HasSubstr("train.dtype is \"int64\""));
}

TEST(OptionsOfATrainer, FixTheThirdSizeOfABatchByTwoOthers) {
  const auto options = [](int64_t batch, int64_t micro, int accumulate) {
    TrainerOptions made = tests::options(2);
    made.batch = batch;
    made.micro_batch = micro;
    made.accumulate = accumulate;
    return made;
  };
  const auto sizes = [&](int64_t batch, int64_t micro, int accumulate) {
    return resolve_strategy(options(batch, micro, accumulate), 1).batch;
  };
  EXPECT_EQ(sizes(64, 8, 0), (plan::BatchSizes{64, 8, 4, 2}));
  EXPECT_EQ(sizes(64, 0, 4), (plan::BatchSizes{64, 8, 4, 2}));
  EXPECT_EQ(sizes(0, 8, 4), (plan::BatchSizes{64, 8, 4, 2}));
  EXPECT_EQ(sizes(0, 8, 0), (plan::BatchSizes{16, 8, 1, 2}));
  EXPECT_EQ(sizes(64, 0, 0), (plan::BatchSizes{64, 32, 1, 2}));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { sizes(64, 8, 3); }),
              ::testing::AllOf(HasSubstr("train.micro_batch is 8"), HasSubstr("accumulate 4")));
  EXPECT_THAT(refusal({.batch = 0}), HasSubstr("data.batch is auto"));
  const Report given = fit(options(16, 0, 2), job(), clouds(40));
  for (const TrainerOptions& two : {options(16, 4, 0), options(0, 4, 2)})
    EXPECT_EQ(fit(two, job(), clouds(40)).parameters_sha256, given.parameters_sha256);
}

TEST(OptionsOfATrainer, AreNamedAsAFileHasThem) {
  EXPECT_THAT(refusal({.dtype = plan::DType::float64, .autocast = plan::DType::float16}),
              HasSubstr("train.precision is fp16 and train.dtype is float64"));
}

TEST(OptionsOfATrainer, DecideTheOrderThatACheckpointNames) {
  const tests::Folder folder;
  TrainerOptions options = tests::options();
  options.steps = 2;
  options.checkpoint.dir = folder.path();
  // A programme has read a file, and changes the order afterwards.
  options.config["data.shuffle"] = "true";
  options.shuffle = false;
  fit(options, job(), clouds(40));
  options.steps = 4;
  EXPECT_EQ(fit(options, job(), clouds(40)).steps, 4);
  options.shuffle = true;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { fit(options, job(), clouds(40)); }),
              HasSubstr("data.shuffle is true now and was false"));
}

// A run that stops within an epoch goes on in the same order, also of several sources.
TEST(OptionsOfATrainer, TakeEveryOrderAndGoOnInIt) {
  const auto mixture = std::make_shared<const plan::Mixture>(
      plan::MixtureOptions{.sources = {{"a", 40, {}}, {"b", 24, {}}},
                           .weights = {{{}, {2, 1}}, {{1, 8}, {1, 1}}},
                           .samples = 44});
  const auto mixed = std::make_shared<MixtureSource>(
      std::vector<std::shared_ptr<const Source>>{clouds(40), clouds(24, 2)}, mixture);
  plan::OrderOptions blocks = plan::OrderKind::blocks, of_mixture = true;
  blocks.blocks = plan::data_blocks({11, 20, 9});
  blocks.window = 8;
  of_mixture.mixture = mixture;
  const std::vector<std::pair<plan::OrderOptions, std::shared_ptr<const Source>>> orders{
      {plan::OrderKind::index, clouds(40)}, {blocks, clouds(40)}, {of_mixture, mixed}};
  for (const auto& [order, source] : orders) {
    const tests::Folder folder;
    TrainerOptions options = tests::options();
    options.shuffle = order;
    options.steps = 8;
    const Report whole = fit(options, job(), source);
    options.checkpoint.dir = folder.path();
    options.steps = 4;
    fit(options, job(), source);
    options.steps = 8;
    const Report resumed = fit(options, job(), source);
    EXPECT_EQ(resumed.parameters_sha256, whole.parameters_sha256) << order.describe(1);
    EXPECT_TRUE(resumed.samples.exactly_once());
    options.steps = 9;
    options.shuffle = plan::OrderKind::full;
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { fit(options, job(), clouds(40)); }),
                HasSubstr("another order"));
  }
}

}  // namespace
}  // namespace trireme::trainer_options_test
