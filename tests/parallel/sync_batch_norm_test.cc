#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <trireme/parallel/sync_batch_norm.h>

#include "models.h"

namespace trireme::tests::sync_batch_norm_test {
namespace {

// Batch norms in the usual places of models: in a Sequential, in a module inside a Sequential, in
// a submodule, and as a function.
struct NormNet : torch::nn::Module {
  struct Middle : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return layers->forward(x); }
    torch::nn::Sequential layers = register_module(
        "layers",
        torch::nn::Sequential(torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).padding(1))));
  };
  struct Tail : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return out(norm(x)); }
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(4, 3));
  };
  explicit NormNet(at::ScalarType dtype = at::kDouble) {
    using namespace torch::nn;
    body = register_module(
        "body", Sequential(Conv2d(Conv2dOptions(2, 4, 3).padding(1)), std::make_shared<Middle>(),
                           BatchNorm2d(BatchNorm2dOptions(4).affine(false))));
    tail = register_module("tail", std::make_shared<Tail>());
    to(dtype);
    fill(*this);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y =
        at::batch_norm(body->forward(x), {}, {}, {}, {}, /*training=*/true, 0.1, 1e-3, false);
    return tail->forward(at::tanh(y).mean({2, 3}));
  }
  torch::nn::Sequential body{nullptr};
  std::shared_ptr<Tail> tail;
};

Data images(int64_t samples, at::ScalarType dtype = at::kDouble, int64_t step = 0) {
  const auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(7 + step));
  return {(at::randn({samples, 2, 4, 4}, generator, at::kDouble) * 3 + 5).to(dtype),
          at::randint(3, {samples}, generator, at::kLong)};
}

// Takes one step of a replica on its share. A replica without samples uses an empty batch.
void train_step(DataParallel& replica, const std::shared_ptr<Group>& norms, NormNet& net,
                const Data& share, int64_t total) {
  const SyncBatchNorm together(norms);
  const at::Tensor output = net.forward(share.x);
  const at::Tensor loss =
      share.size() > 0 ? torch::nn::functional::cross_entropy(output, share.y) : output.sum();
  replica.step(loss, share.size(), total);
}

struct Result {
  std::vector<at::Tensor> gradients, buffers;
};
Result one_device(const std::vector<Data>& steps, at::ScalarType dtype) {
  const auto net = std::make_shared<NormNet>(dtype);
  Result result;
  for (const Data& data : steps) {
    net->zero_grad();
    loss_on(*net, data).backward();
    result.gradients.clear();
    for (const auto& parameter : net->parameters())
      result.gradients.push_back(parameter.grad().clone());
  }
  result.buffers = net->buffers();
  return result;
}

double worst(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, difference(a[i], b[i]));
  return most;
}

void expect_parity(int replicas, const std::vector<Data>& steps, at::ScalarType dtype,
                   double tolerance) {
  const Result expected = one_device(steps, dtype);
  const auto groups = thread_groups(replicas), norms = thread_groups(replicas);
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto net = std::make_shared<NormNet>(dtype);
    DataParallel replica(groups[rank], net, recording());
    for (const Data& data : steps)
      train_step(replica, norms[rank], *net, data.share(group.rank(), replicas), data.size());
    EXPECT_LE(worst(recorded(replica), expected.gradients), tolerance)
        << "rank " << rank << " of " << replicas;
    EXPECT_LE(worst(net->buffers(), expected.buffers), tolerance)
        << "rank " << rank << " of " << replicas;
  });
}

TEST(SyncBatchNorm, GivesGradientsAndRunningStatisticsOfOneDevice) {
  for (const int replicas : {2, 3}) {
    expect_parity(replicas, {images(12), images(12, at::kDouble, 1)}, at::kDouble, 1e-10);
    expect_parity(replicas, {images(12, at::kFloat), images(12, at::kFloat, 1)}, at::kFloat, 1e-5);
  }
}

TEST(SyncBatchNorm, WeighsUnevenSharesByTheirSamples) {
  expect_parity(2, {images(5)}, at::kDouble, 1e-10);
  expect_parity(3, {images(8), images(7, at::kDouble, 1)}, at::kDouble, 1e-10);
}

TEST(SyncBatchNorm, WorksWithAReplicaWithoutSamples) {
  const Data data = images(4);
  const Result expected = one_device({data}, at::kDouble);
  const auto groups = thread_groups(3), norms = thread_groups(3);
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto net = std::make_shared<NormNet>();
    DataParallel replica(groups[rank], net, recording());
    const Data share = rank == 1 ? data.part(0, 0) : rank == 0 ? data.part(0, 2) : data.part(2, 4);
    train_step(replica, norms[rank], *net, share, 4);
    EXPECT_LE(worst(recorded(replica), expected.gradients), 1e-10) << rank;
    EXPECT_LE(worst(net->buffers(), expected.buffers), 1e-10) << rank;
  });
}

TEST(SyncBatchNorm, KeepsItsPrecisionIfTheMeanIsLargeAgainstTheDeviation) {
  const auto groups = thread_groups(2);
  const at::Tensor all = (at::arange(64, at::kDouble).view({8, 2, 4}) * 1e-2 + 1e3).to(at::kFloat);
  const at::Tensor expected =
      at::batch_norm(all.to(at::kDouble), {}, {}, {}, {}, true, 0.1, 1e-12, false);
  on_ranks(groups, [&](Group& group) {
    const SyncBatchNorm together(groups[static_cast<size_t>(group.rank())]);
    const at::Tensor mine = at::batch_norm(all.narrow(0, 4 * group.rank(), 4), {}, {}, {}, {},
                                           true, 0.1, 1e-12, false);
    // A sum of squares in float would have an error as large as the variance.
    EXPECT_LE(difference(mine, expected.narrow(0, 4 * group.rank(), 4)), 2e-3);
  });
}

TEST(SyncBatchNorm, LeavesEvaluationAndInstanceNormAlone) {
  const auto groups = thread_groups(2);
  const Data data = images(4);
  on_ranks(groups, [&](Group& group) {
    // Rank 1 calls none of them: if they communicated, rank 0 would wait for rank 1.
    if (group.rank() == 1) return;
    torch::nn::BatchNorm2d norm(2);
    torch::nn::InstanceNorm2d instance(2);
    norm->to(at::kDouble);
    norm->eval();
    const at::Tensor outside = norm->forward(data.x), apart = instance->forward(data.x);
    const SyncBatchNorm together(groups[0]);
    EXPECT_TRUE(at::equal(norm->forward(data.x), outside));
    EXPECT_TRUE(at::equal(instance->forward(data.x), apart));
  });
}

TEST(SyncBatchNorm, EndsWithItsScope) {
  const auto groups = thread_groups(2);
  const Data data = images(4);
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const at::Tensor before = at::batch_norm(data.x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
    EXPECT_FALSE(SyncBatchNorm::active());
    {
      const SyncBatchNorm together(groups[rank]);
      EXPECT_TRUE(SyncBatchNorm::active());
      at::batch_norm(data.x + group.rank(), {}, {}, {}, {}, true, 0.1, 1e-5, false);
    }
    EXPECT_FALSE(SyncBatchNorm::active());
    if (rank > 0) return;
    EXPECT_TRUE(at::equal(at::batch_norm(data.x, {}, {}, {}, {}, true, 0.1, 1e-5, false), before));
  });
}

TEST(SyncBatchNorm, NormalisesBfloat16InFloat) {
  const auto groups = thread_groups(2);
  const at::Tensor all = images(8, at::kFloat).x.to(at::kBFloat16);
  const at::Tensor expected =
      at::batch_norm(all.to(at::kFloat), {}, {}, {}, {}, true, 0.1, 1e-5, false);
  on_ranks(groups, [&](Group& group) {
    const SyncBatchNorm together(groups[static_cast<size_t>(group.rank())]);
    const at::Tensor mine =
        at::batch_norm(all.narrow(0, 4 * group.rank(), 4), {}, {}, {}, {}, true, 0.1, 1e-5, false);
    EXPECT_EQ(mine.scalar_type(), at::kBFloat16);
    EXPECT_LE(difference(mine, expected.narrow(0, 4 * group.rank(), 4)), 2e-2);
  });
}

TEST(SyncBatchNorm, MayBeFollowedByAnActivationInPlace) {
  const auto groups = thread_groups(2);
  on_ranks(groups, [&](Group& group) {
    const auto gradient = [&](bool in_place) {
      const at::Tensor x = images(4, at::kDouble, group.rank()).x.requires_grad_(true);
      at::Tensor y = at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
      (in_place ? y.relu_() : y.relu()).square().sum().backward();
      return x.grad();
    };
    const SyncBatchNorm together(groups[static_cast<size_t>(group.rank())]);
    const at::Tensor expected = gradient(false);
    EXPECT_TRUE(at::equal(gradient(true), expected));
  });
}

TEST(SyncBatchNorm, RefusesOneValuePerChannelOverAll) {
  const auto groups = thread_groups(2);
  const auto endings = endings_of(groups, [&](Group& group) {
    const SyncBatchNorm together(groups[static_cast<size_t>(group.rank())]);
    at::batch_norm(at::ones({1 - group.rank(), 3}), {}, {}, {}, {}, true, 0.1, 1e-5, false);
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
    EXPECT_NE(ending.what.find("1 values per channel"), std::string::npos) << ending.what;
  }
}

TEST(SyncBatchNorm, RefusesGradientsOfGradients) {
  const auto groups = thread_groups(2);
  const auto endings = endings_of(groups, [&](Group& group) {
    const SyncBatchNorm together(groups[static_cast<size_t>(group.rank())]);
    const at::Tensor x = images(2).x.requires_grad_(true);
    const at::Tensor y = at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false).square().sum();
    torch::autograd::grad({y}, {x}, {}, std::nullopt, /*create_graph=*/true);
  });
  for (const Ending& ending : endings)
    EXPECT_EQ(ending.code, ErrorCode::unsupported) << ending.what;
}

}  // namespace
}  // namespace trireme::tests::sync_batch_norm_test
