// An optimizer that has only a part of the module's parameters, in its own groups; and parameters
// without elements.
#include "ways.h"

#include <torch/optim.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/parallel/layerwise.h>

namespace trireme::partial_optimizer_test {
namespace {

using ::testing::HasSubstr;
using tests::Data;
using tests::data_of;
using tests::Mlp;
using tests::take_step;
using tests::Way;

constexpr double kClose = 1e-10;
constexpr int kSteps = 5;

at::Tensor loss_of(Mlp& net, const Data& data) { return tests::loss_on(net, data); }

std::vector<at::Tensor> named(const std::vector<NamedTensor>& parameters,
                              const std::vector<std::string>& names) {
  std::vector<at::Tensor> tensors;
  for (const std::string& name : names)
    for (const auto& [known, tensor] : parameters)
      if (known == name) tensors.push_back(tensor);
  return tensors;
}

// A factory of the optimizer over the named parameters.
template <typename Optimizer, typename Options>
OptimizerFactory over(const std::vector<std::string>& names, const Options& options) {
  return [=](const std::vector<NamedTensor>& parameters) {
    return std::make_shared<Optimizer>(named(parameters, names), options);
  };
}

struct Rule {
  std::string name;
  std::function<OptimizerFactory(const std::vector<std::string>&)> over_names;
};
std::vector<Rule> rules() {
  namespace o = torch::optim;
  return {
      {"sgd", [](const auto& names) { return over<o::SGD>(names, o::SGDOptions(0.1)); }},
      {"momentum",
       [](const auto& names) { return over<o::SGD>(names, o::SGDOptions(0.1).momentum(0.9)); }},
      {"adam", [](const auto& names) { return over<o::Adam>(names, o::AdamOptions(0.01)); }},
      {"lamb", [](const auto& names) { return over<LambOptimizer>(names, LambOptions(0.01)); }},
  };
}

class Partial : public ::testing::TestWithParam<std::tuple<Way, Rule>> {};
INSTANTIATE_TEST_SUITE_P(
    Ways, Partial,
    ::testing::Combine(::testing::ValuesIn(tests::joined(tests::exact_ways(),
                                                         tests::with(tests::exact_ways(), 0.05,
                                                                     "_clipped"))),
                       ::testing::ValuesIn(rules())),
    [](const auto& each) {
      return std::get<0>(each.param).name + "_" + std::get<1>(each.param).name;
    });

// Lamb steps whole layers, so the other ranks of a host cannot finish its update.
bool can_share(const Way& way, const Rule& rule) {
  return !(way.options.guard.wanted && rule.name == "lamb");
}

TEST_P(Partial, UpdatesTheHeadAndNothingElse) {
  const auto& [way, rule] = GetParam();
  if (!can_share(way, rule)) GTEST_SKIP() << "parameters are not shared";
  for (const auto& names : {std::vector<std::string>{"second.weight", "second.bias"},
                            {"second.bias", "first.weight"},
                            {"first.bias"}}) {
    const OptimizerFactory optimizer = rule.over_names(names);
    Mlp reference;
    const std::vector<double> expected =
        tests::train_alone(reference, optimizer, kSteps, 36, way.options.clip_norm, loss_of);
    tests::run(
        way, [] { return std::make_shared<Mlp>(); }, optimizer,
        [&](DataParallel& replica, Mlp& net, Group& group) {
          for (int step = 0; step < kSteps; ++step) {
            const StepOutcome outcome = take_step(replica, net, data_of(36, step), group, loss_of);
            EXPECT_NEAR(outcome.loss, expected[static_cast<size_t>(step)], kClose);
            EXPECT_TRUE(outcome.unused.empty());
          }
          EXPECT_LT(tests::difference(net, reference), kClose);
          for (const auto& [name, tensor] : replica.state().parameters) {
            const bool is_updated = std::ranges::count(names, name) > 0;
            if (is_updated && rule.name == "sgd")
              continue;  // It may have an entry without tensors.
            EXPECT_EQ(replica.optimizer().state().count(tensor.unsafeGetTensorImpl()),
                      is_updated ? 1u : 0u)
                << name;
          }
        });
  }
}

OptimizerFactory in_groups(bool all) {
  return [=](const std::vector<NamedTensor>& parameters) {
    namespace o = torch::optim;
    std::vector<o::OptimizerParamGroup> groups;
    groups.emplace_back(named(parameters, {"second.bias", "first.weight"}),
                        std::make_unique<o::AdamOptions>(o::AdamOptions(0.02).weight_decay(0.1)));
    groups.emplace_back(named(parameters, {"first.bias"}),
                        std::make_unique<o::AdamOptions>(o::AdamOptions(0.001)));
    if (all)
      groups.emplace_back(named(parameters, {"second.weight"}),
                          std::make_unique<o::AdamOptions>(o::AdamOptions(0.005)));
    return std::make_shared<o::Adam>(std::move(groups), o::AdamOptions(0.01));
  };
}

class PartialInEveryWay : public ::testing::TestWithParam<Way> {};

TEST_P(PartialInEveryWay, GroupsMayStandInAnyOrderAndLeaveParametersOut) {
  for (const bool all : {true, false}) {
    Mlp reference;
    tests::train_alone(reference, in_groups(all), kSteps, 36, 0, loss_of);
    tests::run(
        GetParam(), [] { return std::make_shared<Mlp>(); }, in_groups(all),
        [&](DataParallel& replica, Mlp& net, Group& group) {
          for (int step = 0; step < kSteps; ++step)
            take_step(replica, net, data_of(36, step), group, loss_of);
          EXPECT_LT(tests::difference(net, reference), kClose);
        });
  }
}

// Gradual unfreezing: a group is added between two steps.
TEST_P(PartialInEveryWay, AGroupThatIsAddedLaterIsTrainedFromThenOn) {
  const auto head =
      over<torch::optim::SGD>({"second.weight", "second.bias"}, torch::optim::SGDOptions(0.1));
  const auto add_the_rest = [](torch::optim::Optimizer& optimizer, Mlp& net) {
    optimizer.add_param_group(torch::optim::OptimizerParamGroup(
        {net.first->weight, net.first->bias},
        std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(0.05))));
  };
  Mlp reference;
  const auto alone = head(state_of(reference).parameters);
  for (int step = 0; step < kSteps; ++step) {
    if (step == 2) add_the_rest(*alone, reference);
    reference.zero_grad();
    loss_of(reference, data_of(36, step)).backward();
    alone->step();
  }
  tests::run(
      GetParam(), [] { return std::make_shared<Mlp>(); }, head,
      [&](DataParallel& replica, Mlp& net, Group& group) {
        for (int step = 0; step < kSteps; ++step) {
          if (step == 2) add_the_rest(replica.optimizer(), net);
          take_step(replica, net, data_of(36, step), group, loss_of);
        }
        EXPECT_LT(tests::difference(net, reference), kClose);
      });
}

// The groups keep their sizes.
TEST_P(PartialInEveryWay, AGroupThatGetsOtherParametersTrainsThese) {
  const auto tail =
      over<torch::optim::SGD>({"second.weight", "second.bias"}, torch::optim::SGDOptions(0.1));
  const auto exchange = [](torch::optim::Optimizer& optimizer, Mlp& net) {
    optimizer.param_groups()[0].params() = {net.first->bias, net.second->weight};
  };
  Mlp reference;
  const auto alone = tail(state_of(reference).parameters);
  for (int step = 0; step < kSteps; ++step) {
    if (step == 2) exchange(*alone, reference);
    reference.zero_grad();
    loss_of(reference, data_of(36, step)).backward();
    alone->step();
  }
  tests::run(
      GetParam(), [] { return std::make_shared<Mlp>(); }, tail,
      [&](DataParallel& replica, Mlp& net, Group& group) {
        for (int step = 0; step < kSteps; ++step) {
          if (step == 2) exchange(replica.optimizer(), net);
          take_step(replica, net, data_of(36, step), group, loss_of);
        }
        EXPECT_LT(tests::difference(net, reference), kClose);
      });
}

TEST_P(PartialInEveryWay, GroupsThatDifferFromRankToRankEndAllRanks) {
  const Way& way = GetParam();
  if (way.size() == 1) GTEST_SKIP() << "there is one rank";
  std::atomic<int> told{0};
  tests::run(
      way, [] { return std::make_shared<Mlp>(); },
      over<torch::optim::SGD>({"second.weight", "second.bias"}, torch::optim::SGDOptions(0.1)),
      [&](DataParallel& replica, Mlp& net, Group& group) {
        take_step(replica, net, data_of(36), group, loss_of);
        if (group.rank() == group.size() - 1)
          replica.optimizer().add_param_group(
              torch::optim::OptimizerParamGroup({net.first->weight, net.first->bias}));
        try {
          take_step(replica, net, data_of(36), group, loss_of);
        } catch (const Error& error) {
          EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::invalid_argument));
          EXPECT_THAT(error.what(),
                      HasSubstr(fmt::format("the optimizer of rank {}", group.size() - 1)));
          EXPECT_THAT(error.what(), HasSubstr("add_param_group"));
          ++told;
        }
      });
  EXPECT_EQ(told, way.size());
}

TEST_P(PartialInEveryWay, AFrozenBodyUnderATrainedHead) {
  const auto frozen = [] {
    auto net = std::make_shared<Mlp>();
    for (const at::Tensor& parameter : net->first->parameters()) parameter.requires_grad_(false);
    return net;
  };
  for (const auto& names : {std::vector<std::string>{"second.weight", "second.bias"},
                            {"first.weight", "second.weight"}}) {
    const auto optimizer =
        over<torch::optim::Adam>(names, torch::optim::AdamOptions(0.01).weight_decay(0.1));
    const auto reference = frozen();
    tests::train_alone(*reference, optimizer, kSteps, 36, 0, loss_of);
    tests::run(GetParam(), frozen, optimizer, [&](DataParallel& replica, Mlp& net, Group& group) {
      for (int step = 0; step < kSteps; ++step)
        take_step(replica, net, data_of(36, step), group, loss_of);
      EXPECT_LT(tests::difference(net, *reference), kClose);
    });
  }
}

// Parameters without elements come first, in the middle and last; one has another type.
struct WithEmpty : torch::nn::Module {
  WithEmpty() {
    register_parameter("none", at::zeros({0}, at::kDouble));
    inner = register_module("inner", std::make_shared<Mlp>());
    adapter = register_parameter("adapter", at::zeros({10, 0}, at::kDouble));
    back = register_parameter("back", at::zeros({0, 10}, at::kDouble));
    register_parameter("frozen", at::zeros({3, 0}, at::kDouble), /*requires_grad=*/false);
    register_parameter("other", at::zeros({0}, at::kFloat));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = at::tanh(inner->first(x));
    return inner->second(hidden + hidden.matmul(adapter).matmul(back));
  }
  std::shared_ptr<Mlp> inner;
  at::Tensor adapter, back;
};
at::Tensor empty_loss(WithEmpty& net, const Data& data) {
  at::Tensor loss = tests::loss_on(net, data);
  for (const auto& item : net.named_parameters(false))
    if (item.value().requires_grad()) loss = loss + item.value().sum().to(at::kDouble);
  return loss;
}

TEST_P(PartialInEveryWay, ParametersWithoutElementsWork) {
  for (const double clip_norm : {0.0, 0.05})
    for (const OptimizerFactory& optimizer :
         {OptimizerFactory(SGD{.lr = 0.1, .momentum = 0.9}), OptimizerFactory(Adam{.lr = 0.01}),
          OptimizerFactory(Lamb{.lr = 0.01})}) {
      Way way = GetParam();
      way.options.clip_norm = clip_norm;
      if (way.options.guard.wanted) way.options.guard.wanted = false;  // Lamb cannot be guarded.
      WithEmpty reference;
      const std::vector<double> expected =
          tests::train_alone(reference, optimizer, kSteps, 36, clip_norm, empty_loss);
      tests::run(
          way, [] { return std::make_shared<WithEmpty>(); }, optimizer,
          [&](DataParallel& replica, WithEmpty& net, Group& group) {
            for (int step = 0; step < kSteps; ++step) {
              const double loss =
                  take_step(replica, net, data_of(36, step), group, empty_loss).loss;
              EXPECT_NEAR(loss, expected[static_cast<size_t>(step)], kClose);
            }
            EXPECT_LT(tests::difference(*net.inner, *reference.inner), kClose);
            const OptimizerState saved =
                state_of(replica.optimizer(), replica.updated_parameters());
            load_state(replica.optimizer(), replica.updated_parameters(), saved);
            replica.sync_state();
            EXPECT_TRUE(take_step(replica, net, data_of(36, kSteps), group, empty_loss).updated);
          });
    }
}
INSTANTIATE_TEST_SUITE_P(Ways, PartialInEveryWay, ::testing::ValuesIn(tests::exact_ways()),
                         [](const auto& each) { return each.param.name; });

// The second layer's bias is a part of the first one's storage.
TEST(TiedByStorage, ParametersAreNotShared) {
  const auto tied = [] {
    auto net = std::make_shared<Mlp>();
    net->second->bias.set_data(net->first->bias.detach().narrow(0, 2, 4));
    return net;
  };
  const auto reference = tied();
  tests::train_alone(*reference, SGD{.lr = 0.1}, kSteps, 36, 0, loss_of);
  const auto groups = tests::thread_groups(2);
  tests::on_ranks(groups, [&](Group& group) {
    const auto net = tied();
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, SGD{.lr = 0.1},
                         {.share_parameters = true});
    EXPECT_FALSE(replica.shares_parameters());
    for (int step = 0; step < kSteps; ++step)
      take_step(replica, *net, data_of(36, step), group, loss_of);
    EXPECT_LT(tests::difference(*net, *reference), kClose);
  });
}

struct Tied : torch::nn::Module {
  Tied() {
    to(at::kDouble);
    tests::fill(*this);
    back = register_buffer("back", first->weight.detach());
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = at::tanh(first(x));
    return second(hidden + at::tanh(hidden.matmul(back).matmul(back.t())));
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 10)),
                    second = register_module("second", torch::nn::Linear(10, 4));
  at::Tensor back;
};
at::Tensor tied_loss(Tied& net, const Data& data) { return tests::loss_on(net, data); }

TEST(TiedByStorage, AParameterAndItsViewThatIsABufferAreNotShared) {
  Tied reference;
  tests::train_alone(reference, SGD{.lr = 0.1}, kSteps, 36, 0, tied_loss);
  const auto groups = tests::thread_groups(2);
  tests::on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Tied>();
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, SGD{.lr = 0.1},
                         {.share_parameters = true});
    EXPECT_FALSE(replica.shares_parameters());
    for (int step = 0; step < kSteps; ++step)
      take_step(replica, *net, data_of(36, step), group, tied_loss);
    EXPECT_LT(tests::difference(*net, reference), kClose);
  });
}

// A body of bfloat16 that computes gradients, under a head of float32.
struct MixedTypes : torch::nn::Module {
  MixedTypes() {
    tests::fill(*this);
    body->to(at::kBFloat16);
    neck->to(at::kBFloat16);
  }
  at::Tensor forward(const at::Tensor& x) {
    return head(neck(at::tanh(body(x.to(at::kBFloat16)))).to(at::kFloat));
  }
  torch::nn::Linear body = register_module("body", torch::nn::Linear(6, 10)),
                    neck = register_module("neck", torch::nn::Linear(10, 10)),
                    head = register_module("head", torch::nn::Linear(10, 4));
};
at::Tensor mixed_loss(MixedTypes& net, const Data& data) {
  return tests::loss_on(net, {data.x.to(at::kFloat), data.y});
}

class HeadOfMixedTypes
    : public ::testing::TestWithParam<std::tuple<std::vector<std::string>, double>> {};
INSTANTIATE_TEST_SUITE_P(Hosts, HeadOfMixedTypes,
                         ::testing::Combine(::testing::Values(std::vector<std::string>{"a", "a"},
                                                              std::vector<std::string>{"a", "a",
                                                                                       "b"}),
                                            ::testing::Values(0.0, 0.05)));

TEST_P(HeadOfMixedTypes, TrainsInTheSameWayIfAskedToShare) {
  const auto& [hosts, clip_norm] = GetParam();
  std::vector<double> expected;  // The norms and losses without sharing.
  for (const bool share : {false, true}) {
    tests::Workers workers(static_cast<int>(hosts.size()), tests::world_options(), hosts);
    std::vector<std::string> hashes(hosts.size());
    workers.on_each([&, clip = clip_norm](World& world) {
      const auto net = std::make_shared<MixedTypes>();
      DataParallel replica(world, net,
                           std::make_shared<torch::optim::SGD>(net->head->parameters(),
                                                               torch::optim::SGDOptions(0.1)),
                           {.clip_norm = clip, .gradient_norm = true, .share_parameters = share});
      EXPECT_FALSE(replica.shares_parameters());
      std::vector<double> found;
      for (int step = 0; step < kSteps; ++step) {
        const StepOutcome outcome =
            take_step(replica, *net, data_of(36, step), replica.group(), mixed_loss);
        found.insert(found.end(), {outcome.gradient_norm, outcome.loss});
      }
      hashes[static_cast<size_t>(world.worker())] = sha256_of(replica.state().parameters);
      if (world.worker() != 0) return;
      if (!share) expected = found;
      EXPECT_THAT(found, ::testing::ElementsAreArray(expected));
    });
    workers.leave();
    EXPECT_THAT(hashes, ::testing::Each(hashes[0]));
  }
}

// Masters are float32, so they may be shared.
TEST(BodyWithMasters, IsShared) {
  const auto head =
      over<torch::optim::SGD>({"head.weight", "head.bias"}, torch::optim::SGDOptions(0.1));
  std::vector<double> expected;
  for (const bool share : {false, true}) {
    const Way way{.name = "",
                  .workers = 3,
                  .hosts = {"a", "a", "b"},
                  .options = {.clip_norm = 0.05, .share_parameters = share}};
    tests::run(
        way, [] { return std::make_shared<MixedTypes>(); }, head,
        [&](DataParallel& replica, MixedTypes& net, Group& group) {
          std::vector<double> found;
          for (int step = 0; step < kSteps; ++step)
            found.push_back(
                take_step(replica, net, data_of(36, step), group, mixed_loss).gradient_norm);
          if (group.rank() != 0) return;
          if (!share) expected = found;
          for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4);
        });
  }
}

TEST(EmptyParameters, WorkWithCompression) {
  for (const std::string& name : compressor_names())
    for (const bool share : {false, true}) {
      Way way{.name = "", .workers = 3, .hosts = {"a", "a", "b"}};
      way.options.share_parameters = share;
      way.options.compression = {.name = name, .ratio = 1};
      way.options.buckets = {.capacity_bytes = 64, .first_bytes = 64};  // Some have no elements.
      tests::run(
          way, [] { return std::make_shared<WithEmpty>(); }, SGD{.lr = 0.1},
          [&](DataParallel& replica, WithEmpty& net, Group& group) {
            for (int step = 0; step < kSteps; ++step) {
              const StepOutcome outcome =
                  take_step(replica, net, data_of(36, step), group, empty_loss);
              EXPECT_TRUE(outcome.updated) << name;
              EXPECT_TRUE(std::isfinite(outcome.loss)) << name;
            }
          });
    }
}

}  // namespace
}  // namespace trireme::partial_optimizer_test
