// The means over the ranks of a host, for loops that update themselves.
#include "models.h"

#include <torch/nn/modules/embedding.h>

// This header must come after those of torch.
#include <gtest/gtest.h>

#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/shared/backward_slots.h>
#include <trireme/parallel/shared/host_means.h>
#include <trireme/plan/data_parallel_plan.h>
#include <array>
#include <cmath>

namespace trireme::host_means_test {
namespace {

using tests::Data;
using tests::data_of;
using tests::difference;
using tests::loss_on;
using tests::Mlp;
using tests::on_ranks;
using tests::thread_groups;

constexpr double kClose = 1e-13;

// One rank, whose batch has `samples` of `of_all`.
class Means {
 public:
  Means(Group& group, const torch::nn::Module& module, int64_t samples, int64_t of_all)
      : parameters_(state_of(module).parameters), samples_(samples), of_all_(of_all) {
    plan::DataParallelFacts facts;
    facts.placement = group.placement();
    facts.parameters = specs_of(parameters_);
    facts.leaves_means = true;
    plan::EnginePlan plan = plan::plan_data_parallel(facts);
    EXPECT_EQ(plan.exchange, plan::ExchangeKind::host_means);
    exchange_ = make_host_means({&group, [](Group*) {}}, parameters_, std::move(plan), [this] {
      return static_cast<double>(samples_) / static_cast<double>(of_all_);
    });
  }
  StepOutcome leave(double loss = 1) {
    return exchange_->leave_means({.loss_sum = loss * static_cast<double>(samples_),
                                   .samples = samples_,
                                   .total_samples = of_all_});
  }
  const at::Tensor& gradient(size_t p) const { return parameters_[p].tensor.grad(); }
  size_t count() const { return parameters_.size(); }
  void forget() {
    for (const auto& [name, tensor] : parameters_) tensor.mutable_grad().reset();
  }

 private:
  std::vector<NamedTensor> parameters_;
  int64_t samples_, of_all_;
  std::unique_ptr<Exchange> exchange_;
};

TEST(HostMeans, AreThoseOfTheWholeBatchOnEveryRank) {
  const Data whole = data_of(8);
  const std::array<std::pair<int64_t, int64_t>, 3> parts = {{{0, 1}, {1, 3}, {3, 8}}};
  Mlp alone;
  loss_on(alone, whole).backward();
  std::array<std::vector<at::Tensor>, 3> found;
  on_ranks(thread_groups(3), [&](Group& group) {
    const auto [first, last] = parts.at(static_cast<size_t>(group.rank()));
    Mlp net;
    Means means(group, net, last - first, whole.size());
    for (int step = 0; step < 3; ++step) {
      means.forget();
      loss_on(net, whole.part(first, last)).backward();
      EXPECT_EQ(means.leave().samples, 8);
    }
    for (const at::Tensor& tensor : net.parameters())
      found.at(static_cast<size_t>(group.rank())).push_back(tensor.grad().clone());
  });
  for (size_t p = 0; p < found[0].size(); ++p) {
    EXPECT_LT(difference(found[0][p], alone.parameters()[p].grad()), kClose);
    for (const auto& rank : found) EXPECT_TRUE(at::equal(rank[p], found[0][p]));
  }
}

struct Odd : torch::nn::Module {
  Odd()
      : rows(register_parameter("rows", at::ones({5, 3}))),
        wide(register_parameter("wide", at::ones({4, 6}, at::kDouble))),
        lonely(register_parameter("lonely", at::ones({7}))),
        idle(register_parameter("idle", at::ones({2}))),
        empty(register_parameter("empty", at::ones({0, 3}))),
        frozen(register_parameter("frozen", at::ones({3}), /*requires_grad=*/false)) {}
  at::Tensor rows, wide, lonely, idle, empty, frozen;
};

TEST(HostMeans, TakeGradientsOfEveryKind) {
  on_ranks(thread_groups(2), [](Group& group) {
    const double own = group.rank() + 1;
    Odd net;
    Means means(group, net, 1, 2);
    const at::Tensor sparse = at::sparse_coo_tensor(
        at::tensor({int64_t{group.rank()}}).view({1, 1}), at::full({1, 3}, own), {5, 3});
    net.rows.mutable_grad() = sparse;
    net.wide.mutable_grad() = at::full({6, 4}, own, at::kDouble).t();  // Not contiguous.
    if (group.rank() == 1) net.lonely.mutable_grad() = at::full({7}, own);
    net.empty.mutable_grad() = at::ones({0, 3});
    const StepOutcome outcome = means.leave();

    at::Tensor rows = at::zeros({5, 3});
    rows[0].fill_(0.5);
    rows[1].fill_(1);
    EXPECT_TRUE(at::equal(net.rows.grad(), rows));
    EXPECT_TRUE(at::equal(net.wide.grad(), at::full({4, 6}, 1.5, at::kDouble)));
    EXPECT_TRUE(at::equal(net.lonely.grad(), at::ones({7})));
    EXPECT_EQ(net.empty.grad().numel(), 0);
    EXPECT_FALSE(net.idle.grad().defined());
    EXPECT_FALSE(net.frozen.grad().defined());
    EXPECT_EQ(outcome.unused, std::vector<int>{3});
  });
}

TEST(HostMeans, LeaveGradientsThatSomebodyKeepsAsTheyAre) {
  on_ranks(thread_groups(2), [](Group& group) {
    const Data whole = data_of(4), mine = whole.share(group.rank(), 2);
    Mlp net;
    Means means(group, net, 2, 4);
    loss_on(net, mine).backward();
    means.leave();
    const std::vector<at::Tensor> kept = {means.gradient(0), means.gradient(1)};
    const at::Tensor before = kept[0].clone();
    for (int step = 0; step < 2; ++step) {
      means.forget();
      (loss_on(net, mine) * 3).backward();
      means.leave();
      EXPECT_LT(difference(means.gradient(0), 3 * before), kClose);
    }
    EXPECT_TRUE(at::equal(kept[0], before));
  });
}

TEST(HostMeans, DoNotWriteIntoAGradientThatHasAGradient) {
  on_ranks(thread_groups(2), [](Group& group) {
    const Data whole = data_of(4), mine = whole.share(group.rank(), 2);
    Mlp net;
    Means means(group, net, 2, 4);
    loss_on(net, mine).backward({}, /*keep_graph=*/true, /*create_graph=*/true);
    const at::Tensor own = means.gradient(0), before = own.detach().clone();
    ASSERT_TRUE(own.requires_grad());
    means.leave();
    EXPECT_TRUE(at::equal(own.detach(), before));
    EXPECT_FALSE(at::equal(means.gradient(0), before));
    means.forget();
    for (size_t p = 0; p < means.count(); ++p) net.parameters()[p].mutable_grad().reset();
  });
}

TEST(HostMeans, CountRanksWithoutSamplesAsNothing) {
  on_ranks(thread_groups(2), [](Group& group) {
    const Data whole = data_of(4);
    Mlp net, alone;
    loss_on(alone, whole).backward();
    Means means(group, net, group.rank() == 0 ? 4 : 0, 8);  // Others were to have four more.
    if (group.rank() == 0) loss_on(net, whole).backward();
    EXPECT_EQ(means.leave().samples, 4);
    for (size_t p = 0; p < means.count(); ++p)
      EXPECT_LT(difference(means.gradient(p), alone.parameters()[p].grad()), kClose);
  });
}

TEST(HostMeans, NameTheRankWhoseLossIsNaN) {
  on_ranks(thread_groups(2), [](Group& group) {
    Mlp net;
    Means means(group, net, 1, 2);
    loss_on(net, data_of(1)).backward();
    const StepOutcome outcome = means.leave(group.rank() == 1 ? std::nan("") : 1);
    EXPECT_EQ(outcome.nonfinite_ranks, std::vector<int>{1});
  });
}

TEST(HostMeans, NameTheRankAndTheParameterOfANaN) {
  on_ranks(thread_groups(3), [](Group& group) {
    Mlp net;
    Means means(group, net, 1, 3);
    for (int step = 0; step < 2; ++step) {
      means.forget();
      loss_on(net, data_of(1)).backward();
      const int bad = step == 1 ? 2 : -1;
      if (group.rank() == bad) means.gradient(2)[3][1].fill_(std::nan(""));
      const StepOutcome outcome = means.leave();
      EXPECT_EQ(outcome.nonfinite_ranks, bad < 0 ? std::vector<int>{} : std::vector<int>{bad});
      EXPECT_EQ(outcome.nonfinite_parameter, bad < 0 ? -1 : 2);
      EXPECT_TRUE(outcome.updated);
    }
  });
}

// Slots of one size, for tensors of 24 float32 elements.
std::shared_ptr<shared::GradientSlots> slots() {
  constexpr size_t kBytes = 24 * sizeof(float);
  auto memory = std::make_shared<net::SharedMemory>(
      net::SharedMemory::create(8192, net::Sharing::threads, "a test"));
  memory->reserve(0, 8192);
  return std::make_shared<shared::GradientSlots>(memory, 0, 4096, std::vector<size_t>{64, 512},
                                                 std::vector<size_t>{kBytes, kBytes});
}

TEST(BackwardSlots, ReceiveTheGradientsOfEveryBackwardOfTheThread) {
  install_cpu_allocator();
  auto first = slots(), second = slots();
  const at::Tensor weight = at::ones({4, 6}).requires_grad_(), input = at::ones({2, 6});
  const auto backward = [&](bool create_graph = false) {
    weight.mutable_grad().reset();
    at::mm(input, weight.t()).sum().backward({}, create_graph, create_graph);
    return weight.grad().const_data_ptr();
  };
  EXPECT_FALSE(first->has(backward()));
  shared::offer_to_backward(first);
  EXPECT_TRUE(first->has(backward()));
  EXPECT_FALSE(first->has(backward(/*create_graph=*/true)));
  shared::offer_to_backward(second);
  const void* const either = backward();
  EXPECT_TRUE(first->has(either) || second->has(either));
  const at::Tensor taken = weight.grad(), beside = at::empty({4, 6});
  EXPECT_FALSE(first->has(beside.const_data_ptr()) || second->has(beside.const_data_ptr()));
  first.reset();
  second.reset();
  backward();
  EXPECT_TRUE(at::equal(taken, weight.grad()));
}

}  // namespace
}  // namespace trireme::host_means_test
