#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/parallel/local_sgd.h>

#include "models.h"

namespace trireme::tests::local_sgd_test {
namespace {

// Plain SGD by hand: `replicas` models step apart on their own shares and are averaged after each
// step for which `averages(step)` is true.
std::vector<at::Tensor> by_hand(int replicas, int steps, double lr,
                                const std::function<bool(int)>& averages) {
  std::vector<std::shared_ptr<Mlp>> nets;
  for (int i = 0; i < replicas; ++i) nets.push_back(std::make_shared<Mlp>());
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < replicas; ++i) {
      nets[i]->zero_grad();
      loss_on(*nets[i], data_of(12, step).share(i, replicas)).backward();
      const at::NoGradGuard no_grad;
      for (auto& parameter : nets[i]->parameters()) parameter.sub_(lr * parameter.grad());
    }
    if (!averages(step)) continue;
    const at::NoGradGuard no_grad;
    for (size_t p = 0; p < nets[0]->parameters().size(); ++p) {
      at::Tensor mean = at::zeros_like(nets[0]->parameters()[p]);
      for (const auto& net : nets) mean += net->parameters()[p] / replicas;
      for (const auto& net : nets) net->parameters()[p].copy_(mean);
    }
  }
  return nets[0]->parameters();
}

struct Ran {
  std::vector<at::Tensor> parameters;
  std::vector<int64_t> bytes;  // By step: the bytes that were sent.
  std::vector<double> losses;
};
Ran train(int replicas, int steps, const DataParallelOptions& options, bool weighted = true,
          const OptimizerFactory& optimizer = SGD{.lr = 0.1}) {
  Ran ran;
  std::vector<std::string> hashes(static_cast<size_t>(replicas));
  const auto groups = thread_groups(replicas);
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto net = std::make_shared<Mlp>();
    DataParallel replica(groups[rank], net, optimizer, options);
    for (int step = 0; step < steps; ++step) {
      const Data mine = data_of(12, step).share(group.rank(), replicas);
      const StepOutcome outcome =
          replica.step(loss_on(*net, mine), mine.size(), weighted ? 12 : 0);
      if (rank > 0) continue;
      ran.bytes.push_back(outcome.bytes_sent);
      ran.losses.push_back(outcome.loss);
    }
    replica.synchronise();
    hashes[rank] = sha256_of(replica.state().parameters);
    if (rank == 0) ran.parameters = net->parameters();
  });
  for (const auto& hash : hashes)
    EXPECT_EQ(hash, hashes[0]) << "replicas differ after an averaging";
  return ran;
}

double worst(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, difference(a[i].detach(), b[i].detach()));
  return most;
}

TEST(LocalSgd, StepsApartAndAveragesAsWrittenByHand) {
  for (const int replicas : {2, 3}) {
    for (const bool weighted : {true, false}) {
      const Ran ran = train(replicas, 8, {.local = {.steps = 4}}, weighted);
      EXPECT_LT(
          worst(ran.parameters, by_hand(replicas, 8, 0.1, [](int step) { return step % 4 == 3; })),
          1e-12);
    }
    // The run ends between two averagings, and synchronise() adds one more.
    const Ran uneven = train(replicas, 6, {.local = {.steps = 4}});
    EXPECT_LT(worst(uneven.parameters,
                    by_hand(replicas, 6, 0.1, [](int step) { return step == 3 || step == 5; })),
              1e-12);
  }
}

TEST(LocalSgd, ReducesGradientsUntilTheStepAfterWhichItIsLocal) {
  // Averaging after each step of plain SGD is the same as averaging gradients.
  const Ran ran = train(2, 8, {.local = {.steps = 3, .after = 2}});
  EXPECT_LT(worst(ran.parameters,
                  by_hand(2, 8, 0.1, [](int step) { return step < 2 || step == 4 || step == 7; })),
            1e-12);
}

TEST(LocalSgd, SendsParametersOnlyWhenItAverages) {
  const Ran ran = train(2, 8, {.local = {.steps = 4}});
  for (int step = 0; step < 8; ++step) {
    if (step % 4 == 3)
      EXPECT_GT(ran.bytes[step], ran.bytes[0] * 3) << step;
    else
      EXPECT_EQ(ran.bytes[step], ran.bytes[0]) << step;
  }
  EXPECT_LT(ran.losses[7], ran.losses[0] + 1);
}

TEST(LocalSgd, ClipsEachReplicasOwnGradient) {
  const Ran ran = train(2, 4, {.clip_norm = 0.01, .local = {.steps = 2}});
  const Mlp start;
  double moved = 0;
  for (size_t i = 0; i < ran.parameters.size(); ++i)
    moved += (ran.parameters[i] - start.parameters()[i]).square().sum().item<double>();
  EXPECT_LE(std::sqrt(moved), 4 * 0.1 * 0.01 * 1.001);
  EXPECT_GT(moved, 0);
}

TEST(LocalSgd, AveragesTheOptimizersStateOnRequest) {
  for (const bool momentum : {false, true}) {
    const auto groups = thread_groups(2);
    std::vector<at::Tensor> buffers(2);
    on_ranks(groups, [&](Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      const auto net = std::make_shared<Mlp>();
      DataParallel replica(groups[rank], net, SGD{.lr = 0.1, .momentum = 0.9},
                           {.local = {.steps = 2, .momentum = momentum}});
      for (int step = 0; step < 2; ++step) {
        const Data mine = data_of(8, step).share(group.rank(), 2);
        replica.step(loss_on(*net, mine), mine.size(), 8);
      }
      buffers[rank] =
          state_of(replica.optimizer(), replica.state().parameters).tensors[0].tensor.clone();
    });
    EXPECT_EQ(at::equal(buffers[0], buffers[1]), momentum);
  }
}

TEST(LocalSgd, ReportsAStopAndANaNToEveryReplicaInTheSameStep) {
  const auto groups = thread_groups(3);
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Mlp>();
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, SGD{.lr = 0.1},
                         {.local = {.steps = 10}});
    const Data mine = data_of(9).share(group.rank(), 3);
    if (group.rank() == 2) replica.request_stop();
    EXPECT_TRUE(replica.step(loss_on(*net, mine), mine.size(), 9).stop);
    const std::string before = sha256_of(replica.state().parameters);
    const StepOutcome bad = replica.step(
        loss_on(*net, mine) * (group.rank() == 1 ? std::nan("") : 1.0), mine.size(), 9);
    EXPECT_EQ(bad.nonfinite_ranks, std::vector<int>{1});
    EXPECT_FALSE(bad.updated);
    EXPECT_EQ(sha256_of(replica.state().parameters), before);
  });
}

TEST(LocalSgd, DoesNotUpdateAReplicaWithoutSamplesBeforeTheAveraging) {
  const auto groups = thread_groups(2);
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Mlp>();
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net,
                         SGD{.lr = 0.1, .momentum = 0.9},
                         {.local = {.steps = 2, .momentum = true}});
    const Data mine = data_of(4);
    for (int step = 0; step < 2; ++step) {
      if (group.rank() == 0) replica.backward(loss_on(*net, mine), 4, 4);
      if (group.rank() == 1) replica.backward({}, 0, 4);
      EXPECT_TRUE(replica.step().updated);
    }
    EXPECT_GT(difference(*net, Mlp()), 1e-6) << "the averaging did not change the parameters";
  });
}

TEST(LocalSgd, RefusesNumbersThatMakeNoSense) {
  EXPECT_THROW(check(LocalSgdOptions{.steps = 0}), Error);
  EXPECT_THROW(check(LocalSgdOptions{.after = -1}), Error);
}

}  // namespace
}  // namespace trireme::tests::local_sgd_test
