// Programmes of one's own train what a file describes, with names that they have registered.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>

#include <trireme/models/build.h>
#include <trireme/run/dataset.h>
#include <trireme/run/training.h>

#include "../base/expect_error.h"

namespace trireme::training_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Line : torch::nn::Module {
  explicit Line(const models::InputSpec& input)
      : out(register_module("out", torch::nn::Linear(input.shape[0], input.classes))) {}
  at::Tensor forward(const at::Tensor& x) { return out(x); }
  torch::nn::Linear out;
};

OwnData ramp(const data::DataOptions& options) {
  const int64_t samples = options.path == "long" ? 24 : 12;
  const at::Tensor data = at::arange(samples * 3).reshape({samples, 3}).to(at::kFloat) / samples;
  return {.train = std::make_shared<TensorSource>(data, at::arange(samples).remainder(2)),
          .test = nullptr,
          .input = {{3}, 2},
          .content = options.path == "told" ? "ramp of 12" : ""};
}

// Names stay registered, also if the test runs again.
void register_once() {
  static const bool done = [] {
    register_data("ramp", ramp);
    models::register_model("line", [](const models::ModelOptions&, const models::InputSpec& in) {
      return model_factory<Line>(in);
    });
    return true;
  }();
  ASSERT_TRUE(done);
}

std::string refusal(const std::vector<std::string>& set) {
  return message_of(ErrorCode::invalid_argument, [&] { load_config({{}, set, {}}); });
}

TEST(OwnNames, AreChoicesOfAFileAndTrain) {
  register_once();
  const Config config = load_config(
      {{},
       {"data.name=ramp", "data.path=long", "model.name=line", "train.steps=4", "data.batch=8"}});
  const Training training = training_of(config);
  EXPECT_EQ(training.train->size(), 24);
  EXPECT_EQ(training.options.config["data.name"], "ramp");
  World world = World::join(config.world, Environment());
  const Report report =
      Trainer(world, training.options).fit(training.job, training.train, training.test);
  EXPECT_EQ(report.loss_history.size(), 4u);
  EXPECT_EQ(report.strategy, "one_device");
}

TEST(OwnNames, OfDataAreReadAsOthersAreAndKeepAllKeys) {
  register_once();
  const Config config = load_config({{}, {"data.name=ramp", "data.path=long", "model.name=line"}});
  const Dataset data = read_data(config);
  EXPECT_EQ(data.train_samples, 24);
  EXPECT_EQ(data.test_samples, 0);
  EXPECT_EQ(data.input.shape, (std::vector<int64_t>{3}));
  Json keys = keys_to_agree(config);
  identify_data(keys, config, data);
  EXPECT_EQ(keys["data.content"], "long");
  keys.erase("data.content");
  Json all = keys_to_agree(config);
  for (const char* const of_mixtures :
       {"data.weights_at", "data.when_exhausted", "data.epoch_samples"})
    all.erase(of_mixtures);
  EXPECT_EQ(keys, all);
}

TEST(OwnNames, AreOfferedForAWrongOneAndCannotBeTaken) {
  register_once();
  EXPECT_THAT(refusal({"data.name=rampe"}), HasSubstr("try: data.name=ramp"));
  EXPECT_THAT(refusal({"model.name=lime"}), HasSubstr("try: model.name=line"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { register_data("digits", ramp); }),
              HasSubstr("'digits' already exists"));
}

// The keys by which a resume notices other data.
Json keys_of(const Config& config) {
  register_once();
  return training_of(config).options.config;
}

TEST(OwnNames, OfDataAreKnownByTheirContentOrElseByTheirPath) {
  Config config;
  config.data.name = "ramp";
  config.data.path = "long";
  config.model.name = "line";
  EXPECT_EQ(keys_of(config)["data.content"], "long");
  config.data.path = "told";
  EXPECT_EQ(keys_of(config)["data.content"], "ramp of 12");
  config.data.path = "";
  EXPECT_FALSE(keys_of(config).contains("data.content"));
}

TEST(NamesOfAProgramme, AreRefusedIfNothingHasThem) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { make_optimizer({.name = "adamW"}); }),
              AllOf(HasSubstr("optimizer.name is \"adamW\""), HasSubstr("adamw")));
  Config config;
  config.data.name = "mnist";
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { read_data(config); }),
              HasSubstr("data.name is \"mnist\""));
}

// A programme changes the options after it has read them.
TEST(OptionsOfAProgramme, AreCheckedAsThoseOfAFile) {
  const auto refused = [](auto change) {
    Config config = load_options({});
    change(config);
    const std::string error =
        message_of(ErrorCode::invalid_argument, [&] { training_of(config); });
    EXPECT_EQ(message_of(ErrorCode::invalid_argument, [&] { check(config); }), error);
    return error;
  };
  EXPECT_THAT(
      refused([](Config& c) { c.optimizer.name = "adamW"; }),
      AllOf(HasSubstr("optimizer.name is \"adamW\""), HasSubstr("try: optimizer.name=adam")));
  EXPECT_THAT(refused([](Config& c) { c.optimizer.lr = -1; }), HasSubstr("optimizer.lr is"));
  EXPECT_THAT(refused([](Config& c) { c.data.name = "mnist"; }), HasSubstr("data.name is"));
  EXPECT_THAT(refused([](Config& c) { c.world.timeout = Milliseconds(0); }),
              HasSubstr("comm.timeout is"));
  EXPECT_THAT(refused([](Config& c) { c.patience.stop_grace = Milliseconds(-1); }),
              HasSubstr("launch.stop_grace is"));
  EXPECT_THAT(refused([](Config& c) { c.trainer.dtype = plan::DType::int64; }),
              HasSubstr("train.dtype is"));
}

}  // namespace
}  // namespace trireme::training_test
