// Gradients whose memory another tensor also uses, or will use: the losses are those of one
// device.
#include "ways.h"

#include <torch/nn/modules/container/modulelist.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

namespace trireme::gradient_memory_test {
namespace {

using tests::Data;
using tests::data_of;
using tests::take_step;
using tests::Way;

constexpr double kClose = 1e-10;
constexpr int kSteps = 5;

// Layers of one size: gradients and temporaries of backward fit into each other's slots.
struct Deep : torch::nn::Module {
  explicit Deep(int64_t width = 128) {
    layers->push_back(torch::nn::Linear(6, width));
    for (int i = 0; i < 2; ++i) layers->push_back(torch::nn::Linear(width, width));
    layers->push_back(torch::nn::Linear(width, 4));
    to(at::kDouble);
    const at::NoGradGuard no_grad;
    tests::fill(*this);
    for (const at::Tensor& parameter : parameters()) parameter.mul_(0.3);
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < layers->size(); ++i) {
      x = layers[i]->as<torch::nn::Linear>()->forward(x);
      if (i + 1 < layers->size()) x = at::tanh(x);
    }
    return x;
  }
  torch::nn::ModuleList layers = register_module("layers", torch::nn::ModuleList());
};

at::Tensor cross_entropy(Deep& net, const Data& data) { return tests::loss_on(net, data); }

class SlotsBetweenHosts : public ::testing::TestWithParam<std::tuple<int64_t, int, bool, double>> {
};
INSTANTIATE_TEST_SUITE_P(Batches, SlotsBetweenHosts,
                         ::testing::Combine(::testing::Values(384, 381), ::testing::Values(1, 2),
                                            ::testing::Bool(), ::testing::Values(0.0, 0.5)));

// With 384 samples on 3 ranks, activations have exactly the size of a weight.
TEST_P(SlotsBetweenHosts, GradientsAreThoseOfOneDeviceForAllAllocationsOfBackward) {
  const auto [samples, parts, all_at_once, clip_norm] = GetParam();
  Deep reference;
  const std::vector<double> expected = tests::train_alone(
      reference, SGD{.lr = 0.1, .momentum = 0.9}, kSteps, samples, clip_norm, cross_entropy);
  Way way{.name = "", .workers = 3, .hosts = {"a", "a", "b"}, .options = {.clip_norm = clip_norm}};
  way.options.share_parameters = true;
  if (!all_at_once) way.options.buckets = {.capacity_bytes = 1 << 14, .first_bytes = 1 << 12};
  tests::run(
      way, [] { return std::make_shared<Deep>(); }, SGD{.lr = 0.1, .momentum = 0.9},
      [&](DataParallel& replica, Deep& net, Group& group) {
        for (int step = 0; step < kSteps; ++step) {
          const double loss =
              take_step(replica, net, data_of(samples, step), group, cross_entropy, parts).loss;
          EXPECT_NEAR(loss, expected[static_cast<size_t>(step)], kClose) << "step " << step;
        }
        EXPECT_LT(tests::difference(net, reference), kClose);
      });
}

// Pairs of parameters whose gradients autograd leaves in one storage, completely or in part.
struct Embedded : torch::nn::Module {
  Embedded() {
    to(at::kDouble);
    tests::fill(*this);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor sum = position.unsqueeze(0) + kind.unsqueeze(0) +
                           at::cat({left, right}).view({1, 2, 4}) + wide.view({1, 2, 4});
    const at::Tensor hidden = x.unsqueeze(2) * first.view({1, 6, 1}) + second.view({1, 6, 1});
    return (at::sin(hidden).sum({1, 2}).view({-1, 1, 1}) * at::tanh(sum)).sum(1);
  }
  at::Tensor make(const std::string& name, at::IntArrayRef sizes) {
    return register_parameter(name, at::zeros(sizes));
  }
  at::Tensor position = make("position", {2, 4}), kind = make("kind", {2, 4}),
             left = make("left", {4}), right = make("right", {4}), wide = make("wide", {8}),
             first = make("first", {6}), second = make("second", {6});
};

at::Tensor embedded_loss(Embedded& net, const Data& data) { return tests::loss_on(net, data); }

class Aliased : public ::testing::TestWithParam<std::tuple<Way, int>> {};
std::string name_of(const ::testing::TestParamInfo<std::tuple<Way, int>>& each) {
  return std::get<0>(each.param).name + "_in_" + std::to_string(std::get<1>(each.param));
}
INSTANTIATE_TEST_SUITE_P(
    Ways, Aliased,
    ::testing::Combine(::testing::ValuesIn(tests::joined(tests::exact_ways(),
                                                         tests::with(tests::exact_ways(), 0.01,
                                                                     "_clipped"))),
                       ::testing::Values(1, 3)),
    name_of);

TEST(AliasedGradients, AutogradLeavesTwoGradientsInOneStorage) {
  Embedded net;
  embedded_loss(net, data_of(9)).backward();
  EXPECT_EQ(net.position.grad().const_data_ptr(), net.kind.grad().const_data_ptr())
      << "without this the tests below show nothing";
}

TEST_P(Aliased, TrainAsOneDevice) {
  const auto& [way, parts] = GetParam();
  for (const OptimizerFactory& optimizer :
       {OptimizerFactory(SGD{.lr = 0.1, .momentum = 0.9}), OptimizerFactory(Adam{.lr = 0.01})}) {
    Embedded reference;
    const std::vector<double> expected =
        tests::train_alone(reference, optimizer, kSteps, 36, way.options.clip_norm, embedded_loss);
    tests::run(
        way, [] { return std::make_shared<Embedded>(); }, optimizer,
        [&, parts = parts](DataParallel& replica, Embedded& net, Group& group) {
          for (int step = 0; step < kSteps; ++step) {
            const double loss =
                take_step(replica, net, data_of(36, step), group, embedded_loss, parts).loss;
            EXPECT_NEAR(loss, expected[static_cast<size_t>(step)], kClose) << "step " << step;
          }
          EXPECT_LT(tests::difference(net, reference), kClose);
        });
  }
}

TEST_P(Aliased, GradientsThatTheCallerSetsAreTakenAsTheyAre) {
  const auto& [way, parts] = GetParam();
  if (way.options.virtual_shards > 0 || parts > 1) GTEST_SKIP() << "this way has another call";
  Embedded reference;
  const double clip_norm = way.options.clip_norm;
  // Each gradient is 1 everywhere.
  const double factor =
      clip_norm > 0 ? clip_norm / (std::sqrt(8 + 8 + 4 + 4 + 8 + 6 + 6) + 1e-6) : 1.0;
  tests::run(
      way, [] { return std::make_shared<Embedded>(); }, SGD{.lr = 0.5},
      [&](DataParallel& replica, Embedded& net, Group& group) {
        replica.backward(embedded_loss(net, data_of(36).share(group.rank(), group.size())), 12);
        const at::Tensor ones = at::full({8}, 12.0, at::kDouble);  // The sums over 12 samples.
        net.position.mutable_grad() = ones.view({2, 4});
        net.kind.mutable_grad() = net.position.grad();
        net.wide.mutable_grad() = ones;
        net.left.mutable_grad() = ones.narrow(0, 0, 4);
        net.right.mutable_grad() = ones.narrow(0, 2, 4);
        net.first.mutable_grad() = at::full({1}, 12.0, at::kDouble).expand({6});
        net.second.mutable_grad() = ones.narrow(0, 0, 6);
        replica.step();
        EXPECT_TRUE(ones.eq(12.0).all().item<bool>()) << "the caller's own tensor was changed";
        for (const auto& item : net.named_parameters()) {
          const at::Tensor before = reference.named_parameters()[item.key()];
          EXPECT_LT(tests::difference(item.value().detach(), before.detach() - 0.5 * factor),
                    kClose)
              << item.key();
        }
      });
}

class FlatGradients : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, FlatGradients,
                         ::testing::ValuesIn(tests::joined(tests::exact_ways(),
                                                           tests::with(tests::exact_ways(), 0.5,
                                                                       "_clipped"))),
                         [](const auto& each) { return each.param.name; });

// All gradients are parts of one tensor, as code with mixed precision or fused clipping has them.
TEST_P(FlatGradients, MayBeScaledByTheCallerBeforeTheStep) {
  const Way& way = GetParam();
  const auto loss_of = [](tests::Mlp& net, const Data& data) { return tests::loss_on(net, data); };
  // The reference scales the loss, and so its gradients, by the same factor.
  tests::Mlp reference;
  tests::train_alone(reference, SGD{.lr = 0.1}, kSteps, 36, way.options.clip_norm,
                     [&](tests::Mlp& net, const Data& data) { return loss_of(net, data) * 3; });
  tests::run(
      way, [] { return std::make_shared<tests::Mlp>(); }, SGD{.lr = 0.1},
      [&](DataParallel& replica, tests::Mlp& net, Group& group) {
        const auto add = [&](const Data& mine, int64_t total) {
          int64_t elements = 0;
          for (const at::Tensor& parameter : net.parameters()) elements += parameter.numel();
          const at::Tensor flat = at::zeros({elements}, at::kDouble);
          int64_t place = 0;
          for (const at::Tensor& parameter : net.parameters()) {
            parameter.mutable_grad() =
                flat.narrow(0, place, parameter.numel()).view(parameter.sizes());
            place += parameter.numel();
          }
          replica.backward(loss_of(net, mine), mine.size(), total);
          flat.mul_(3);
        };
        for (int step = 0; step < kSteps; ++step) {
          const Data whole = data_of(36, step);
          if (way.options.virtual_shards == 0) {
            add(whole.share(group.rank(), group.size()), whole.size());
          } else {
            for (int shard = replica.shards().first; shard < replica.shards().last; ++shard) {
              add(whole.share(shard, tests::kVirtualShards), whole.size());
              replica.end_shard();
            }
          }
          replica.step();
        }
        EXPECT_LT(tests::difference(net, reference), kClose);
      });
}

// Each replica takes its own step, so only the gradients of one replica are scaled.
TEST(AliasedGradients, LocalStepsScaleThemOnce) {
  for (const double clip_norm : {0.0, 0.01}) {
    Embedded reference;
    tests::train_alone(reference, SGD{.lr = 0.1}, kSteps, 36, clip_norm, embedded_loss);
    const Way way{.name = "",
                  .replicas = 2,
                  .options = {.clip_norm = clip_norm, .local = {.steps = kSteps + 1}}};
    tests::run(
        way, [] { return std::make_shared<Embedded>(); }, SGD{.lr = 0.1},
        [&](DataParallel& replica, Embedded& net, Group&) {
          for (int step = 0; step < kSteps; ++step)  // Both replicas use the same samples.
            replica.step(embedded_loss(net, data_of(36, step)), 36);
          EXPECT_LT(tests::difference(net, reference), kClose);
        });
  }
}

TEST(AliasedGradients, AScaledLossIsScaledBackOnce) {
  Embedded reference;
  tests::train_alone(reference, SGD{.lr = 0.1}, kSteps, 36, 0, embedded_loss);
  for (Way way : tests::exact_ways()) {
    way.options.loss_scaling = GradScalerOptions{.initial = 1024};
    tests::run(
        way, [] { return std::make_shared<Embedded>(); }, SGD{.lr = 0.1},
        [&](DataParallel& replica, Embedded& net, Group& group) {
          for (int step = 0; step < kSteps; ++step)
            take_step(replica, net, data_of(36, step), group, embedded_loss);
          EXPECT_LT(tests::difference(net, reference), kClose) << way.name;
        });
  }
}

TEST(AliasedGradients, CompressionThatLeavesNothingOutGivesTheSameSums) {
  Embedded reference;
  tests::train_alone(reference, SGD{.lr = 0.1}, kSteps, 36, 0.01, embedded_loss);
  const CompressionOptions whole{.name = "topk", .ratio = 1};
  const DataParallelOptions plain{.clip_norm = 0.01, .compression = whole};
  DataParallelOptions shared = plain;
  shared.share_parameters = true;
  for (const Way& way :
       {Way{.name = "", .replicas = 2, .options = plain},
        Way{.name = "", .workers = 3, .hosts = {"a", "a", "b"}, .options = plain},
        Way{.name = "", .workers = 3, .hosts = {"a", "a", "b"}, .options = shared}})
    tests::run(
        way, [] { return std::make_shared<Embedded>(); }, SGD{.lr = 0.1},
        [&](DataParallel& replica, Embedded& net, Group& group) {
          for (int step = 0; step < kSteps; ++step)
            take_step(replica, net, data_of(36, step), group, embedded_loss);
          EXPECT_LT(tests::difference(net, reference), 1e-6);
        });
}

}  // namespace
}  // namespace trireme::gradient_memory_test
