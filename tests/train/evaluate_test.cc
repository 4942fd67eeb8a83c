#include "jobs.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/train/evaluate.h>

namespace trireme::evaluate_test {
namespace {

using tests::clouds;

Model model_of_seed(uint64_t seed) {
  at::manual_seed(seed);
  Model model = model_factory<tests::Classifier>()();
  model.module->to(at::kDouble);
  return model;
}

// The data-parallel engine of a rank.
std::unique_ptr<Engine> engine_of(const Model& model, std::shared_ptr<Group> group) {
  EngineSetting setting;
  setting.strategy = "mirrored";
  setting.group = std::move(group);
  setting.model = model;
  setting.optimizer = tests::job().optimizer;
  return find_strategy("mirrored").make(setting);
}

class Evaluated : public ::testing::TestWithParam<std::tuple<int, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(WorldAndData, Evaluated,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5),
                                            ::testing::Values(1, 2, 7, 100)));

TEST_P(Evaluated, CountsEachSampleOnce) {
  const auto [size, samples] = GetParam();
  const auto source = clouds(samples);
  std::vector<int64_t> all(static_cast<size_t>(samples));
  std::iota(all.begin(), all.end(), 0);
  const Example whole = source->get_batch(all);
  const Model reference = model_of_seed(1);
  const at::Tensor output = reference.forward(whole.data);
  const double loss = at::cross_entropy_loss(output, whole.target).item<double>();
  const double accuracy = output.argmax(1).eq(whole.target).to(at::kDouble).mean().item<double>();
  std::vector<Model> models;
  for (int rank = 0; rank < size; ++rank) models.push_back(model_of_seed(1));
  const Job job = tests::job();
  const auto groups = tests::thread_groups(size);
  tests::on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto engine = engine_of(models[rank], groups[rank]);
    const Evaluation evaluation =
        evaluate(*engine, models[rank], job, *source, {8, at::kDouble}, group);
    EXPECT_EQ(evaluation.samples, std::get<1>(GetParam()));
    EXPECT_NEAR(evaluation.loss, loss, 1e-12);
    EXPECT_DOUBLE_EQ(evaluation.accuracy, accuracy);
  });
}

TEST(Evaluate, NeitherTrainsNorLeavesTheModelInAnotherMode) {
  const Model model = model_of_seed(1);
  const std::string before = sha256_of(state_of(*model.module).parameters);
  const auto group = tests::thread_groups(1)[0];
  bool was_training = true;
  const Model watched{model.module, [&](const at::Tensor& data) {
                        was_training = model.module->is_training();
                        return model.forward(data);
                      }};
  const auto engine = engine_of(watched, group);
  evaluate(*engine, watched, tests::job(), *clouds(10), {4, at::kDouble}, *group);
  EXPECT_FALSE(was_training);
  EXPECT_TRUE(model.module->is_training());
  EXPECT_EQ(sha256_of(state_of(*model.module).parameters), before);
}

TEST(Evaluate, UsesTheJobsOwnLossAndCount) {
  Job job = tests::job();
  job.loss = [](const at::Tensor& output, const at::Tensor&) {
    return at::full({}, 2.5, output.options());
  };
  job.correct = [](const at::Tensor&, const at::Tensor& target) { return target.numel() / 2; };
  const auto group = tests::thread_groups(1)[0];
  const Model model = model_of_seed(1);
  const auto engine = engine_of(model, group);
  const Evaluation evaluation =
      evaluate(*engine, model, job, *clouds(10), {10, at::kDouble}, *group);
  EXPECT_DOUBLE_EQ(evaluation.loss, 2.5);
  EXPECT_DOUBLE_EQ(evaluation.accuracy, 0.5);
}

// An engine whose ranks compute every share together, as stages of a pipeline do. Only the last
// rank has the output.
class Stages : public Engine {
 public:
  Stages(Model model, bool is_last) : model_(std::move(model)), is_last_(is_last) {}
  StepOutcome step(const StepRequest&) override { return {}; }
  at::Tensor evaluate(const Batch& batch) override {
    samples += batch.size();
    return is_last_ ? output_of(model_, batch) : at::Tensor();
  }
  DataShare data_share() const override { return {0, 1}; }
  void prepare_to_read() override {}
  EngineState state() override { return {}; }
  void begin_load(const IncomingState&) override {}
  void end_load() override {}
  std::vector<double> rates() const override { return {}; }
  void set_rates(std::span<const double>) override {}
  const plan::EnginePlan& plan() const override { return plan_; }

  int64_t samples = 0;

 private:
  const Model model_;
  const bool is_last_;
  const plan::EnginePlan plan_{};
};

TEST(Evaluate, CountsAShareOnceIfSeveralRanksComputeItTogether) {
  const auto source = clouds(20);
  const Job job = tests::job();
  std::vector<Model> models;
  for (int rank = 0; rank < 3; ++rank) models.push_back(model_of_seed(1));
  const auto alone = tests::thread_groups(1)[0];
  const auto reference = engine_of(models[0], alone);
  const Evaluation expected =
      evaluate(*reference, models[0], job, *source, {8, at::kDouble}, *alone);
  tests::on_ranks(tests::thread_groups(3), [&](Group& group) {
    const Model& model = models[static_cast<size_t>(group.rank())];
    Stages engine(model, group.rank() == 2);
    const Evaluation evaluation = evaluate(engine, model, job, *source, {8, at::kDouble}, group);
    EXPECT_EQ(engine.samples, 20) << "all ranks compute all samples";
    EXPECT_EQ(evaluation.samples, 20);
    EXPECT_DOUBLE_EQ(evaluation.loss, expected.loss);
    EXPECT_DOUBLE_EQ(evaluation.accuracy, expected.accuracy);
  });
}

}  // namespace
}  // namespace trireme::evaluate_test
