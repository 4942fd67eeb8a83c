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
  tests::on_ranks(tests::thread_groups(size), [&](Group& group) {
    const Evaluation evaluation =
        evaluate(models[static_cast<size_t>(group.rank())], job, *source, 8, at::kDouble, group);
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
  evaluate(watched, tests::job(), *clouds(10), 4, at::kDouble, *group);
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
  const Evaluation evaluation =
      evaluate(model_of_seed(1), job, *clouds(10), 10, at::kDouble, *group);
  EXPECT_DOUBLE_EQ(evaluation.loss, 2.5);
  EXPECT_DOUBLE_EQ(evaluation.accuracy, 0.5);
}

}  // namespace
}  // namespace trireme::evaluate_test
