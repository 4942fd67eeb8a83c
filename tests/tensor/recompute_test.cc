#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
// These headers must come after torch.h.
#include <gmock/gmock.h>

#include <trireme/tensor/autocast.h>
#include <trireme/tensor/recompute.h>
#include <trireme/tensor/replica_random.h>
#include <functional>

#include "../base/expect_error.h"

namespace trireme::recompute_test {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;
using Forward = std::function<Tensors(const Tensors&)>;

// A block with every source of differences between two runs.
struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(6, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        second(register_module("second", torch::nn::Linear(8, 5))) {}
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
};

std::shared_ptr<KeeperSetting> keeper() {
  auto setting = std::make_shared<KeeperSetting>();
  setting->place = "the block 'middle'";
  setting->bytes = std::make_shared<ActivationBytes>();
  return setting;
}

at::Tensor input(int64_t rows = 4, int64_t columns = 6) {
  return (at::arange(rows * columns, at::kFloat) * 0.7).sin().view({rows, columns});
}

// Gradients of a leaf and of parameters, the outputs, and the state that is left.
struct Outcome {
  Tensors all;
  int64_t held = 0;  // Bytes between forward and backward.
  int runs = 0;
};

Outcome run(const Forward& forward, const Tensors& parameters, const Tensors& buffers,
            bool recomputed) {
  ReplicaRandom random(5);
  Outcome outcome;
  const Forward counted = [&](const Tensors& inputs) {
    ++outcome.runs;
    return forward(inputs);
  };
  const auto setting = keeper();
  RecomputedBlock block({counted, buffers, &random});
  KeptTensors kept(setting);
  const at::Tensor leaf = input().requires_grad_();
  const at::Tensor hidden = leaf * 2;
  Tensors outputs;
  if (recomputed) {
    outputs = block({hidden}, setting);
  } else {
    const SavedTensorScope scope(&kept);
    outputs = counted({hidden});
  }
  outcome.held = setting->bytes->current();
  at::Tensor sum = at::zeros({});
  for (const at::Tensor& output : outputs) sum = sum + (output * output).sum();
  outcome.all = outputs;
  Tensors wanted = {leaf};
  wanted.insert(wanted.end(), parameters.begin(), parameters.end());
  const Tensors gradients =
      torch::autograd::grad({sum}, wanted, {}, std::nullopt, false, /*allow_unused=*/true);
  outcome.all.insert(outcome.all.end(), gradients.begin(), gradients.end());
  for (const at::Tensor& buffer : buffers) outcome.all.push_back(buffer.clone());
  outcome.all.push_back(at::rand({3}));  // The random numbers that come next.
  EXPECT_EQ(setting->bytes->current(), 0) << "backward has freed everything";
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.all.size(), b.all.size());
  for (size_t i = 0; i < a.all.size(); ++i) {
    ASSERT_EQ(a.all[i].defined(), b.all[i].defined()) << i;
    EXPECT_TRUE(!a.all[i].defined() || a.all[i].equal(b.all[i])) << "tensor " << i;
  }
}

// The forwards that a recomputation must not be visible in.
struct Case {
  std::string name;
  std::function<Tensors(Net&, const Tensors&)> forward;
};

std::vector<Case> cases() {
  return {
      {"Linear", [](Net& n, const Tensors& x) { return Tensors{n.first(x[0])}; }},
      {"Chain",
       [](Net& n, const Tensors& x) { return Tensors{n.second(at::tanh(n.first(x[0])))}; }},
      {"Dropout",
       [](Net& n, const Tensors& x) {
         return Tensors{n.second(at::dropout(at::tanh(n.first(x[0])), 0.5, true))};
       }},
      {"BatchNorm",
       [](Net& n, const Tensors& x) {
         return Tensors{n.second(at::tanh(n.norm(n.first(x[0]))))};
       }},
      {"ReluInPlace",
       [](Net& n, const Tensors& x) { return Tensors{n.second(n.norm(n.first(x[0])).relu_())}; }},
      {"InputInPlace",
       [](Net& n, const Tensors& x) {
         return Tensors{n.second(at::tanh(n.first(x[0].mul_(0.5).relu_())))};
       }},
      {"SeveralOutputs",
       [](Net& n, const Tensors& x) {
         const at::Tensor y = at::sigmoid(n.first(x[0]));
         return Tensors{y, n.second(y), y.sin()};
       }},
      {"Views",
       [](Net& n, const Tensors& x) {
         const at::Tensor y = n.first(x[0]).exp();
         const at::Tensor one = y.narrow(1, 0, 1).expand({4, 8});
         return Tensors{(y * one).t().contiguous() * y.t(), y.view({2, 16}).cos()};
       }},
      {"SavesItsInputTwice",
       [](Net&, const Tensors& x) { return Tensors{x[0] * x[0].sin() * x[0].t().t()}; }},
  };
}

class Recomputation : public ::testing::TestWithParam<Case> {};

TEST_P(Recomputation, IsNotVisible) {
  const auto outcome = [&](bool recomputed) {
    const ReplicaRandom initial(3);
    Net net;
    const Forward forward = [&](const Tensors& x) { return GetParam().forward(net, x); };
    return run(forward, net.parameters(), net.buffers(), recomputed);
  };
  const Outcome kept = outcome(false), again = outcome(true);
  expect_same(kept, again);
  EXPECT_EQ(kept.runs, 1);
  EXPECT_LE(again.held, kept.held + 4 * 6 * 4) << "it holds its input alone";
}

INSTANTIATE_TEST_SUITE_P(Forwards, Recomputation, ::testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name; });

TEST(RecomputedBlock, RunsAgainOnceAndOnlyIfSomethingIsMissing) {
  const ReplicaRandom initial(3);
  Net net;
  const Forward deep = [&](const Tensors& x) {
    return Tensors{net.second(at::tanh(net.first(x[0])))};
  };
  EXPECT_EQ(run(deep, net.parameters(), {}, true).runs, 2);
  const Forward linear = [&](const Tensors& x) { return Tensors{net.first(x[0])}; };
  const auto setting = keeper();
  int runs = 0;
  RecomputedBlock block({[&](const Tensors& x) {
                           ++runs;
                           return linear(x);
                         },
                         {},
                         nullptr});
  for (int step = 0; step < 2; ++step)
    block({(input().requires_grad_() * 2)}, setting)[0].sum().backward();
  EXPECT_EQ(runs, 3) << "after the first step it knows that the input stays";
}

// The gradients of a square layer that a block uses, with and without recomputation. `inputs`
// makes the block's inputs from a leaf. Storages of inputs that need no gradient are those of a
// batch.
Tensors gradients_of(const std::function<Tensors(const at::Tensor& leaf)>& inputs,
                     const std::function<Tensors(torch::nn::Linear&, const Tensors&)>& forward,
                     bool recomputed) {
  const ReplicaRandom initial(3);
  torch::nn::Linear layer(6, 6);
  const at::Tensor leaf = input().requires_grad_();
  const Tensors given = inputs(leaf);
  const auto setting = keeper();
  auto of_batch = std::make_shared<StorageSet>();
  for (const at::Tensor& each : given)
    if (!each.requires_grad()) of_batch->insert(each.storage().unsafeGetStorageImpl());
  setting->of_batch = of_batch;
  RecomputedBlock block({[&](const Tensors& x) { return forward(layer, x); }, {}, nullptr});
  KeptTensors kept(setting);
  Tensors outputs;
  if (recomputed) {
    outputs = block(given, setting);
  } else {
    const SavedTensorScope scope(&kept);
    outputs = forward(layer, given);
  }
  return torch::autograd::grad({(outputs[0] * outputs[0]).sum()},
                               {layer->weight, layer->bias, leaf}, {}, std::nullopt, false,
                               /*allow_unused=*/true);
}

void expect_same_gradients(
    const std::function<Tensors(const at::Tensor& leaf)>& inputs,
    const std::function<Tensors(torch::nn::Linear&, const Tensors&)>& forward) {
  const Tensors kept = gradients_of(inputs, forward, false),
                again = gradients_of(inputs, forward, true);
  for (size_t i = 0; i < kept.size(); ++i) {
    ASSERT_EQ(kept[i].defined(), again[i].defined()) << i;
    EXPECT_TRUE(!kept[i].defined() || kept[i].equal(again[i])) << "gradient " << i;
  }
}

TEST(RecomputedBlock, MayChangeABatchInPlace) {
  expect_same_gradients([](const at::Tensor& leaf) { return Tensors{input() + 1, leaf * 2}; },
                        [](torch::nn::Linear& layer, const Tensors& x) {
                          x[0].mul_(0.5);
                          return Tensors{at::tanh(layer(x[0])) * x[1].sin()};
                        });
}

TEST(RecomputedBlock, MayChangeAnInputThatIsThereTwice) {
  expect_same_gradients(
      [](const at::Tensor& leaf) {
        const at::Tensor x = leaf * 2;
        return Tensors{x, x.narrow(1, 0, 3)};
      },
      [](torch::nn::Linear& layer, const Tensors& x) {
        const at::Tensor changed = x[0].relu_();
        return Tensors{at::tanh(layer(changed)).narrow(1, 0, 3) * x[1].detach()};
      });
}

TEST(RecomputedBlock, MayComputeGradientsInItsForward) {
  expect_same_gradients([](const at::Tensor& leaf) { return Tensors{leaf * 2}; },
                        [](torch::nn::Linear& layer, const Tensors& x) {
                          const at::Tensor y = at::tanh(layer(x[0]));
                          const Tensors slope = torch::autograd::grad(
                              {y.sum()}, {x[0]}, {}, /*retain_graph=*/true, /*create_graph=*/true);
                          return Tensors{y + slope[0].square()};
                        });
}

TEST(RecomputedBlock, ComputesUnderTheAutocastOfItsForward) {
  const ReplicaRandom initial(3);
  Net net;
  const auto gradient = [&](bool recomputed) {
    const auto setting = keeper();
    const Forward forward = [&](const Tensors& x) {
      return Tensors{net.second(at::tanh(net.first(x[0])))};
    };
    RecomputedBlock block({forward, {}, nullptr});
    const at::Tensor leaf = input().requires_grad_();
    at::Tensor loss;
    {
      const Autocast mixed(at::kBFloat16);
      loss = (recomputed ? block({leaf * 2}, setting) : forward({leaf * 2}))[0].pow(2).sum();
    }
    loss.backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    return leaf.grad();
  };
  EXPECT_TRUE(gradient(true).equal(gradient(false)));
}

TEST(RecomputedBlock, ServesARetainedGraphAgain) {
  const ReplicaRandom initial(3);
  Net net;
  const auto setting = keeper();
  RecomputedBlock block(
      {[&](const Tensors& x) { return Tensors{net.second(at::tanh(net.first(x[0])))}; },
       {},
       nullptr});
  const at::Tensor leaf = input().requires_grad_();
  const at::Tensor loss = block({leaf * 2}, setting)[0].pow(2).sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor first = leaf.grad().clone();
  leaf.mutable_grad().reset();
  loss.backward();
  EXPECT_TRUE(leaf.grad().equal(first));
}

TEST(RecomputedBlock, DoesNothingWithoutGradients) {
  const at::NoGradGuard no_grad;
  const auto setting = keeper();
  int runs = 0;
  RecomputedBlock block({[&](const Tensors& x) {
                           ++runs;
                           return Tensors{x[0].sin()};
                         },
                         {},
                         nullptr});
  EXPECT_TRUE(block({input()}, setting)[0].equal(input().sin()));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(setting->bytes->peak(), 0);
}

TEST(RecomputedBlock, LetsAnErrorOfItsSecondRunThrough) {
  const auto setting = keeper();
  bool fails = false;
  RecomputedBlock block({[&](const Tensors& x) {
                           const at::Tensor y = x[0].sin();
                           if (fails) throw std::runtime_error("no more");
                           return Tensors{(y * y).exp()};
                         },
                         {},
                         nullptr});
  const at::Tensor leaf = input().requires_grad_();
  const at::Tensor expected =
      torch::autograd::grad({((leaf * 2).sin().pow(2)).exp().sum()}, {leaf})[0];
  const at::Tensor loss = block({leaf * 2}, setting)[0].sum();
  fails = true;
  EXPECT_THROW(loss.backward({}, /*retain_graph=*/true), std::runtime_error);
  fails = false;
  leaf.mutable_grad().reset();
  loss.backward();
  EXPECT_TRUE(leaf.grad().allclose(expected));
}

TEST(RecomputedBlock, RefusesASecondRunThatDiffers) {
  const auto setting = keeper();
  int runs = 0;
  RecomputedBlock block({[&](const Tensors& x) {
                           return Tensors{++runs == 1 ? x[0].sin().exp().cos() : x[0].sin()};
                         },
                         {},
                         nullptr});
  const at::Tensor loss = block({input().requires_grad_() * 2}, setting)[0].sum();
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { loss.backward(); }),
              HasSubstr("the block 'middle'"));
}

TEST(RecomputedBlock, RefusesASavedTensorThatItChangesInPlace) {
  const auto setting = keeper();
  RecomputedBlock block({[&](const Tensors& x) {
                           const at::Tensor y = x[0].exp();
                           return Tensors{y.add_(1).sin()};
                         },
                         {},
                         nullptr});
  const at::Tensor loss = block({input().requires_grad_() * 2}, setting)[0].sum();
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { loss.backward(); }),
              HasSubstr("the block 'middle'"));
}

TEST(RecomputedBlock, RefusesAnInputThatChangedSinceItsForward) {
  const auto setting = keeper();
  RecomputedBlock block(
      {[&](const Tensors& x) { return Tensors{(x[0] * 3).sin().exp()}; }, {}, nullptr});
  const at::Tensor leaf = input().requires_grad_();
  const at::Tensor hidden = leaf * 2;
  const at::Tensor loss = block({hidden}, setting)[0].sum();
  hidden.add_(1);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { loss.backward(); }),
              HasSubstr("operation in place"));
}

TEST(KeptTensors, RefuseATensorThatChangedInPlace) {
  const auto setting = keeper();
  KeptTensors kept(setting);
  const at::Tensor leaf = input().requires_grad_();
  at::Tensor middle, loss;
  {
    const SavedTensorScope scope(&kept);
    middle = leaf * 2;
    loss = middle.sin().sum();
  }
  middle.add_(1);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { loss.backward(); }),
              HasSubstr("the block 'middle'"));
}

TEST(KeptTensors, CountEachStorageOnceAndNoParameter) {
  const auto setting = keeper();
  KeptTensors kept(setting);
  const at::Tensor weight = input(6, 6).clone().requires_grad_();
  {
    const SavedTensorScope scope(&kept);
    const at::Tensor x = input() + weight.sum();  // 4 x 6 values
    const at::Tensor y = x.mm(weight.t());        // Saves x and a view of the weight.
    const at::Tensor z = y * x;                   // Saves y, and x once more.
    EXPECT_EQ(setting->bytes->current(), 2 * 4 * 6 * 4);
  }
  EXPECT_EQ(setting->bytes->current(), 0);
  EXPECT_EQ(setting->bytes->peak(), 2 * 4 * 6 * 4);
}

}  // namespace
}  // namespace trireme::recompute_test
