// Models and losses that use more of a batch than data and target, under every strategy.
#include "jobs.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"

namespace trireme::named_tensors_test {
namespace {

using tests::clouds;
using tests::fit;

// Samples with a mask over their features and a weight in the loss.
class Masked : public Source {
 public:
  explicit Masked(int64_t samples) : points_(clouds(samples)) {}
  int64_t size() const override { return points_->size(); }
  Example get(const Draw& draw) const override {
    Example example = points_->get(draw);
    example.more["mask"] = at::ones({5}, at::kDouble);
    example.more["mask"][draw.index % 5] = 0;
    example.more["weight"] = at::scalar_tensor(1.0 + draw.index % 3, at::kDouble);
    return example;
  }

 private:
  std::shared_ptr<TensorSource> points_;
};

Job masked_job() {
  Job job = tests::job();
  job.model = [] {
    const auto net = std::make_shared<tests::Classifier>();
    return Model{net,
                 [net](const Tensors& inputs) { return net->forward(inputs[0] * inputs[1]); },
                 {"data", "mask"}};
  };
  job.loss = [](const at::Tensor& output, const Batch& batch) {
    const at::Tensor each = at::cross_entropy_loss(output, batch.target, {}, at::Reduction::None);
    return (each * batch.tensor("weight")).mean();
  };
  job.correct = [](const at::Tensor& output, const Batch& batch) {
    return output.argmax(1).eq(batch.target).sum().item<int64_t>();
  };
  return job;
}

TEST(NamedTensorsInTraining, GiveTheSameLossesUnderEveryStrategy) {
  const auto source = std::make_shared<Masked>(90);
  const Report alone = fit(tests::options(1), masked_job(), source, source);
  for (const int replicas : {2, 3})
    for (const int accumulate : {1, 2}) {
      TrainerOptions options = tests::options(replicas);
      options.accumulate = accumulate;
      const Report report = fit(options, masked_job(), source, source);
      EXPECT_LT(tests::difference(report.loss_history, alone.loss_history), 1e-10);
      EXPECT_NEAR(report.eval->loss, alone.eval->loss, 1e-10);
      EXPECT_DOUBLE_EQ(report.eval->accuracy, alone.eval->accuracy);
    }
}

TEST(NamedTensorsInTraining, AreCutIntoVirtualShards) {
  const auto source = std::make_shared<Masked>(90);
  std::string hash;
  for (const int replicas : {1, 2, 3}) {
    TrainerOptions options = tests::options(replicas);
    options.virtual_shards = 4;
    const Report report = fit(options, masked_job(), source);
    if (hash.empty()) hash = report.parameters_sha256;
    EXPECT_EQ(report.parameters_sha256, hash) << replicas;
  }
}

// The mask and the weight matter: without them the losses are others.
TEST(NamedTensorsInTraining, HaveAnEffect) {
  const auto source = std::make_shared<Masked>(90);
  Job plain = masked_job();
  plain.loss = {};
  EXPECT_GT(tests::difference(fit(tests::options(), plain, source).loss_history,
                              fit(tests::options(), masked_job(), source).loss_history),
            1e-3);
}

TEST(NamedTensorsInTraining, ThatTheSourceLacksAreNamedOnEveryStrategy) {
  for (const int replicas : {1, 2})
    EXPECT_THAT(
        message_of(ErrorCode::invalid_argument,
                   [&] { fit(tests::options(replicas), masked_job(), clouds(90)); }),
        ::testing::AllOf(::testing::HasSubstr("'mask'"), ::testing::HasSubstr("data, target")));
}

}  // namespace
}  // namespace trireme::named_tensors_test
