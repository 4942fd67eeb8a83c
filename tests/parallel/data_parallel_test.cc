// Replicas compute the same as one device that sees the whole batch.
#include "models.h"

#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"

namespace trireme::data_parallel_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::Data;
using tests::data_of;
using tests::difference;
using tests::Mlp;
using tests::on_ranks;
using tests::recorded;
using tests::recording;
using tests::thread_groups;

constexpr double kClose = 1e-12;

std::shared_ptr<Group> handle(const tests::Groups& groups, const Group& group) {
  return groups[static_cast<size_t>(group.rank())];
}

// The gradients of the mean loss over `data` on one device.
template <typename Net>
std::vector<at::Tensor> gradients_of(Net& net, const Data& data) {
  loss_on(net, data).backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : net.parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

void expect_gradients(const std::vector<at::Tensor>& actual,
                      const std::vector<at::Tensor>& expected, double close = kClose) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].defined(), expected[i].defined()) << i;
    if (expected[i].defined()) {
      EXPECT_LT(difference(actual[i], expected[i]), close) << i;
    }
  }
}

class Replicas : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
  // Runs `body(replica, net, group)` on every rank with an Mlp and a Recorder.
  template <typename Body>
  void run(Body body, const DataParallelOptions& options = {},
           const OptimizerFactory& optimizer = recording()) {
    const auto groups = thread_groups(size());
    on_ranks(groups, [&](Group& group) {
      auto net = std::make_shared<Mlp>();
      DataParallel replica(handle(groups, group), net, optimizer, options);
      body(replica, *net, group);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(WorldSizes, Replicas, ::testing::Values(1, 2, 3, 4));

TEST_P(Replicas, GradientsAndLossAreThoseOfTheWholeBatch) {
  for (const int64_t samples : {size() * 4, size() * 4 + 1, 11}) {  // Even and uneven shares.
    Mlp reference;
    const Data whole = data_of(samples);
    const auto expected = gradients_of(reference, whole);
    const double loss = loss_on(reference, whole).item<double>();
    run([&](DataParallel& replica, Mlp& net, Group& group) {
      const Data mine = whole.share(group.rank(), group.size());
      const StepOutcome outcome = replica.step(loss_on(net, mine), mine.size());
      EXPECT_NEAR(outcome.loss, loss, kClose);
      EXPECT_EQ(outcome.samples, samples);
      EXPECT_TRUE(outcome.updated);
      EXPECT_FALSE(outcome.stop);
      EXPECT_THAT(outcome.nonfinite_ranks, IsEmpty());
      expect_gradients(recorded(replica), expected);
    });
  }
}

TEST_P(Replicas, GradientsAreUndefinedAfterAStep) {
  run([&](DataParallel& replica, Mlp& net, Group&) {
    for (int step = 0; step < 2; ++step) {
      replica.step(loss_on(net, data_of(4)), 4);
      for (const auto& parameter : net.parameters()) EXPECT_FALSE(parameter.grad().defined());
    }
  });
}

TEST_P(Replicas, AKnownTotalGivesTheSameGradients) {
  const Data whole = data_of(13);
  Mlp reference;
  const auto expected = gradients_of(reference, whole);
  run([&](DataParallel& replica, Mlp& net, Group& group) {
    const Data mine = whole.share(group.rank(), group.size());
    EXPECT_EQ(replica.step(loss_on(net, mine), mine.size(), whole.size()).samples, 13);
    expect_gradients(recorded(replica), expected);
  });
}

TEST_P(Replicas, MicroBatchesAddUp) {
  const Data whole = data_of(17);
  Mlp reference;
  const auto expected = gradients_of(reference, whole);
  const double loss = loss_on(reference, whole).item<double>();
  for (const int64_t total : {int64_t{0}, whole.size()}) {
    run([&](DataParallel& replica, Mlp& net, Group& group) {
      const Data mine = whole.share(group.rank(), group.size());
      for (int part = 0; part < 3; ++part) {
        const Data micro = mine.share(part, 3);
        replica.backward(loss_on(net, micro), micro.size(), total);
      }
      EXPECT_NEAR(replica.step().loss, loss, kClose);
      expect_gradients(recorded(replica), expected);
    });
  }
}

TEST_P(Replicas, OneWithoutSamplesContributesNothing) {
  const Data whole = data_of(5);
  Mlp reference;
  const auto expected = gradients_of(reference, whole);
  for (const int64_t total : {int64_t{0}, whole.size()}) {
    run([&](DataParallel& replica, Mlp& net, Group& group) {
      const bool has_all = group.rank() == group.size() - 1;
      const at::Tensor loss =
          has_all ? loss_on(net, whole)
                  : at::full({}, std::nan(""), at::kDouble);  // The mean over no samples.
      const StepOutcome outcome = replica.step(loss, has_all ? 5 : 0, total);
      EXPECT_TRUE(outcome.updated);
      EXPECT_EQ(outcome.samples, 5);
      expect_gradients(recorded(replica), expected);
    });
  }
}

// Such a rank never called backward(), so it could not say that the total is known.
TEST_P(Replicas, OneThatOnlyStepsAgreesWithTheOthers) {
  const Data whole = data_of(5);
  Mlp reference;
  const auto expected = gradients_of(reference, whole);
  run([&](DataParallel& replica, Mlp& net, Group& group) {
    if (group.rank() == 0) replica.backward(loss_on(net, whole), 5, 5);
    replica.step();
    expect_gradients(recorded(replica), expected);
  });
}

TEST_P(Replicas, ThatDisagreeWhetherTheTotalIsKnownGetAnError) {
  if (size() == 1) return;
  run([&](DataParallel& replica, Mlp& net, Group& group) {
    replica.backward(loss_on(net, data_of(5)), 5, group.rank() == 0 ? 5 * size() : 0);
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { replica.step(); }),
                HasSubstr("total_samples"));
  });
}

TEST_P(Replicas, WithoutAnySamplesUpdateNothing) {
  run([&](DataParallel& replica, Mlp&, Group&) {
    const StepOutcome outcome = replica.step(at::Tensor(), 0);
    EXPECT_FALSE(outcome.updated);
    EXPECT_EQ(outcome.samples, 0);
    EXPECT_EQ(outcome.loss, 0);
  });
}

TEST_P(Replicas, ClippingIsTorchsOwn) {
  const Data whole = data_of(12);
  for (const double clip : {0.05, 1000.0}) {
    Mlp reference;
    gradients_of(reference, whole);
    const double norm = torch::nn::utils::clip_grad_norm_(reference.parameters(), clip);
    std::vector<at::Tensor> expected;
    for (const auto& parameter : reference.parameters()) expected.push_back(parameter.grad());
    run(
        [&](DataParallel& replica, Mlp& net, Group& group) {
          const Data mine = whole.share(group.rank(), group.size());
          const StepOutcome outcome = replica.step(loss_on(net, mine), mine.size());
          EXPECT_NEAR(outcome.gradient_norm, norm, kClose);
          expect_gradients(recorded(replica), expected);
        },
        {.clip_norm = clip});
  }
}

TEST_P(Replicas, TheNormIsReportedOnlyOnRequest) {
  Mlp reference;
  const Data data = data_of(3);
  gradients_of(reference, data);
  const double norm = torch::nn::utils::clip_grad_norm_(reference.parameters(), 1e9);
  run([&](DataParallel& replica, Mlp& net, Group&) {
    EXPECT_LT(replica.step(loss_on(net, data), 3).gradient_norm, 0);
  });
  run(
      [&](DataParallel& replica, Mlp& net, Group&) {
        EXPECT_NEAR(replica.step(loss_on(net, data), 3).gradient_norm, norm, kClose);
      },
      {.gradient_norm = true});
}

TEST_P(Replicas, ANonFiniteLossNamesItsRanksAndUpdatesNothing) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    run([&](DataParallel& replica, Mlp& net, Group& group) {
      const std::string before = sha256_of(replica.state().parameters);
      at::Tensor loss = loss_on(net, data_of(4));
      if (group.rank() == group.size() - 1) loss = loss * bad;
      const StepOutcome outcome = replica.step(loss, 4);
      EXPECT_THAT(outcome.nonfinite_ranks, ElementsAre(group.size() - 1));
      EXPECT_FALSE(outcome.updated);
      EXPECT_EQ(sha256_of(replica.state().parameters), before);
      EXPECT_THAT(recorded(replica), IsEmpty());
      // The failed step has no effect on the next step.
      EXPECT_TRUE(replica.step(loss_on(net, data_of(4)), 4).updated);
    });
  }
}

TEST_P(Replicas, AWishToStopReachesAllWithTheNextStepAndIsForgotten) {
  run([&](DataParallel& replica, Mlp& net, Group& group) {
    if (group.rank() == 0) replica.request_stop();
    EXPECT_TRUE(replica.step(loss_on(net, data_of(4)), 4).stop);
    EXPECT_FALSE(replica.step(loss_on(net, data_of(4)), 4).stop);
  });
}

TEST_P(Replicas, ManySmallBucketsGiveTheSameGradients) {
  const Data whole = data_of(9);
  Mlp reference;
  const auto expected = gradients_of(reference, whole);
  run(
      [&](DataParallel& replica, Mlp& net, Group& group) {
        const Data mine = whole.share(group.rank(), group.size());
        replica.step(loss_on(net, mine), mine.size());
        expect_gradients(recorded(replica), expected);
      },
      {.buckets = {.capacity_bytes = 8, .first_bytes = 8}});
}

TEST_P(Replicas, TrainingIsThatOfOneDeviceWithEveryOptimizer) {
  const std::vector<OptimizerFactory> optimizers{SGD{.lr = 0.1, .momentum = 0.9}, Adam{.lr = 0.01},
                                                 AdamW{.lr = 0.01}, RMSprop{}, Adagrad{}};
  for (const OptimizerFactory& factory : optimizers) {
    Mlp reference;
    const auto optimizer = factory(state_of(reference).parameters);
    for (int step = 0; step < 10; ++step) {
      optimizer->zero_grad();
      loss_on(reference, data_of(10, step)).backward();
      optimizer->step();
    }
    std::vector<std::string> hashes(static_cast<size_t>(size()));
    run(
        [&](DataParallel& replica, Mlp& net, Group& group) {
          for (int step = 0; step < 10; ++step) {
            const Data mine = data_of(10, step).share(group.rank(), group.size());
            replica.step(loss_on(net, mine), mine.size(), 10);
          }
          EXPECT_LT(difference(net, reference), 1e-9);
          hashes[static_cast<size_t>(group.rank())] = sha256_of(replica.state().parameters);
        },
        {}, factory);
    for (const auto& hash : hashes) EXPECT_EQ(hash, hashes[0]) << "replicas differ";
  }
}

TEST_P(Replicas, StartFromRankZerosParameters) {
  const auto groups = thread_groups(size());
  const std::string expected = sha256_of(state_of(Mlp()).parameters);
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<Mlp>();
    if (group.rank() > 0) {
      const at::NoGradGuard no_grad;
      for (auto& parameter : net->parameters()) parameter.fill_(static_cast<double>(group.rank()));
    }
    const DataParallel replica(handle(groups, group), net, recording());
    EXPECT_EQ(sha256_of(replica.state().parameters), expected);
  });
}

TEST_P(Replicas, SyncStateHandsOutTheChangesOfRankZero) {
  run([&](DataParallel& replica, Mlp& net, Group& group) {
    if (group.rank() == 0) {
      const at::NoGradGuard no_grad;
      net.first->weight.fill_(3);
    }
    replica.sync_state();
    EXPECT_TRUE(net.first->weight.detach().equal(at::full({10, 6}, 3.0, at::kDouble)));
  });
}

struct TwoHeads : torch::nn::Module {
  TwoHeads() {
    to(at::kDouble);
    tests::fill(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return use_b ? b(x) : a(x); }
  torch::nn::Linear a = register_module("a", torch::nn::Linear(6, 4)),
                    b = register_module("b", torch::nn::Linear(6, 4)),
                    never = register_module("never", torch::nn::Linear(6, 4));
  bool use_b = false;
};

TEST_P(Replicas, AParameterUsedOnSomeRanksIsReducedAndOneUsedNowhereIsSkipped) {
  const Data whole = data_of(size() * 3);
  TwoHeads reference;  // Rank 0 uses head b, the other ranks head a.
  (loss_on(reference, whole.part(3, 3)).nan_to_num(0) * 0).backward();
  reference.zero_grad();
  reference.use_b = true;
  (loss_on(reference, whole.part(0, 3)) * 3 / static_cast<double>(whole.size())).backward();
  reference.use_b = false;
  if (size() > 1)
    (loss_on(reference, whole.part(3, whole.size())) * static_cast<double>(whole.size() - 3) /
     static_cast<double>(whole.size()))
        .backward();
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<TwoHeads>();
    DataParallel replica(handle(groups, group), net, recording());
    net->use_b = group.rank() == 0;
    const Data mine = whole.share(group.rank(), group.size());
    replica.step(loss_on(*net, mine), 3);
    // The order is a.weight, a.bias, b.weight, b.bias, never.weight, never.bias.
    const auto& gradients = recorded(replica);
    EXPECT_EQ(gradients[0].defined(), size() > 1);
    if (size() > 1) {
      EXPECT_LT(difference(gradients[0], reference.a->weight.grad()), kClose);
    }
    EXPECT_LT(difference(gradients[2], reference.b->weight.grad()), kClose);
    EXPECT_FALSE(gradients[4].defined());
    EXPECT_FALSE(gradients[5].defined());
  });
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<TwoHeads>();
    DataParallel replica(handle(groups, group), net, Adam{.weight_decay = 0.1});
    const std::string before = sha256_of({{"never", net->never->weight}});
    replica.step(loss_on(*net, whole), whole.size());
    EXPECT_EQ(sha256_of({{"never", net->never->weight}}), before) << "weight decay was applied";
    EXPECT_EQ(replica.optimizer().state().count(net->never->weight.unsafeGetTensorImpl()), 0u);
    EXPECT_EQ(replica.optimizer().state().count(net->a->weight.unsafeGetTensorImpl()), 1u);
  });
}

struct TiedNet : torch::nn::Module {
  TiedNet() {
    out->weight = out->register_parameter("tied", in->weight);
    to(at::kDouble);
    out->weight = in->weight;
    tests::fill(*this);
  }
  at::Tensor forward(const at::Tensor& x) {
    return at::linear(at::tanh(in(x)), in->weight).narrow(1, 0, 4);
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(6, 6)),
                    out = register_module("out", torch::nn::Linear(6, 6));
};

TEST_P(Replicas, TiedParametersAreExchangedOnce) {
  const Data whole = data_of(9);
  TiedNet reference;
  loss_on(reference, whole).backward();
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<TiedNet>();
    DataParallel replica(handle(groups, group), net, recording());
    EXPECT_EQ(replica.state().aliases.count("out.tied"), 1u);
    const Data mine = whole.share(group.rank(), group.size());
    replica.step(loss_on(*net, mine), mine.size());
    EXPECT_LT(difference(recorded(replica)[0], reference.in->weight.grad()), kClose);
  });
}

TEST_P(Replicas, FrozenParametersStayAndAreNotExchanged) {
  const Data whole = data_of(9);
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<Mlp>();
    for (auto& parameter : net->first->parameters()) parameter.requires_grad_(false);
    const at::Tensor before = net->first->weight.clone();
    DataParallel replica(handle(groups, group), net, AdamW{.lr = 0.1});
    const Data mine = whole.share(group.rank(), group.size());
    replica.step(loss_on(*net, mine), mine.size());
    EXPECT_TRUE(net->first->weight.equal(before));
    EXPECT_FALSE(net->second->weight.detach().equal(Mlp().second->weight.detach()));
  });
}

class HalfReplicas : public ::testing::TestWithParam<std::tuple<int, at::ScalarType>> {};
INSTANTIATE_TEST_SUITE_P(Types, HalfReplicas,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(at::kHalf, at::kBFloat16)));
TEST_P(HalfReplicas, GradientsOfSixteenBitsAreThoseOfTheWholeBatch) {
  const auto [size, dtype] = GetParam();
  // Sums over so many samples need a known total.
  const Data whole = data_of(300, 0, dtype);
  Mlp reference;
  reference.to(dtype);
  const auto expected = gradients_of(reference, whole);
  const auto groups = thread_groups(size);
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<Mlp>();
    net->to(dtype);
    DataParallel replica(handle(groups, group), net, recording(), {.gradient_norm = true});
    const Data mine = whole.share(group.rank(), group.size());
    const StepOutcome outcome = replica.step(loss_on(*net, mine), mine.size(), whole.size());
    EXPECT_EQ(outcome.samples, 300);
    EXPECT_NEAR(outcome.loss, loss_on(reference, whole).template item<double>(), 0.02);
    expect_gradients(recorded(replica), expected, 0.005);
    EXPECT_GT(outcome.gradient_norm, 0);
  });
}

struct MixedNet : torch::nn::Module {
  MixedNet() {
    tests::fill(*this);
    low->to(at::kHalf);
    high->to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    return high(middle(low(x.to(at::kHalf)).to(at::kFloat)).to(at::kDouble));
  }
  torch::nn::Linear low = register_module("low", torch::nn::Linear(6, 6)),
                    middle = register_module("middle", torch::nn::Linear(6, 6)),
                    high = register_module("high", torch::nn::Linear(6, 4));
};
TEST_P(Replicas, AModelMayMixTypes) {
  const Data whole = data_of(12);
  MixedNet reference;
  const auto expected = gradients_of(reference, whole);
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<MixedNet>();
    DataParallel replica(handle(groups, group), net, recording());
    const Data mine = whole.share(group.rank(), group.size());
    EXPECT_EQ(replica.step(loss_on(*net, mine), mine.size(), 12).samples, 12);
    expect_gradients(recorded(replica), expected, 2e-3);
  });
}

TEST_P(Replicas, LbfgsTakesThePathOfOneDevice) {
  const auto factory = [](const std::vector<NamedTensor>& parameters) {
    return std::make_shared<torch::optim::LBFGS>(
        tests::trainable_of(parameters),
        torch::optim::LBFGSOptions(0.5).max_iter(6).line_search_fn("strong_wolfe"));
  };
  const Data whole = data_of(24);
  Mlp reference;
  const auto optimizer = factory(state_of(reference).parameters);
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    losses.push_back(optimizer
                         ->step([&] {
                           optimizer->zero_grad();
                           const at::Tensor loss = loss_on(reference, whole);
                           loss.backward();
                           return loss;
                         })
                         .item<double>());
  }
  run(
      [&](DataParallel& replica, Mlp& net, Group& group) {
        const Data mine = whole.share(group.rank(), group.size());
        for (const double loss : losses) {
          const StepOutcome outcome =
              replica.step([&] { return loss_on(net, mine); }, mine.size());
          EXPECT_NEAR(outcome.loss, loss, 1e-9);
          EXPECT_TRUE(outcome.updated);
          for (const auto& parameter : net.parameters()) EXPECT_FALSE(parameter.grad().defined());
        }
        EXPECT_LT(difference(net, reference), 1e-8);
      },
      {}, factory);
}

TEST_P(Replicas, TwoEnginesInOneProgrammeDoNotInterfere) {
  // A generator and a critic take steps in turn with different losses, as in a GAN.
  const auto play = [](auto step_generator, auto step_critic, Mlp& generator, Mlp& critic,
                       const Data& data) {
    for (int round = 0; round < 3; ++round) {
      const at::Tensor made = generator.forward(data.x);
      step_critic(critic.forward(made.detach()).square().mean());
      step_generator(critic.forward(made).mean());
    }
  };
  const Data whole = data_of(12);
  Mlp generator(6, 10, 6), critic(6, 8, 1);
  torch::optim::SGD first(generator.parameters(), 0.1);
  torch::optim::Adam second(critic.parameters(), 0.01);
  const auto plain = [](torch::optim::Optimizer& optimizer) {
    return [&optimizer](const at::Tensor& loss) {
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    };
  };
  const auto step_critic_alone = [&](const at::Tensor& loss) { plain(second)(loss); };
  play(plain(first), step_critic_alone, generator, critic, whole);

  const auto for_generators = thread_groups(size()), for_critics = thread_groups(size());
  on_ranks(for_generators, [&](Group& group) {
    auto g = std::make_shared<Mlp>(6, 10, 6), c = std::make_shared<Mlp>(6, 8, 1);
    DataParallel generators(handle(for_generators, group), g, SGD{.lr = 0.1}),
        critics(handle(for_critics, group), c, Adam{.lr = 0.01});
    const Data mine = whole.share(group.rank(), group.size());
    play(
        [&](const at::Tensor& loss) {
          generators.step(loss, mine.size());
          c->zero_grad();  // The generator's loss left gradients in the critic.
        },
        [&](const at::Tensor& loss) { critics.step(loss, mine.size()); }, *g, *c, mine);
    EXPECT_LT(difference(*g, generator), 1e-9);
    EXPECT_LT(difference(*c, critic), 1e-9);
  });
}

struct Buffered : torch::nn::Module {
  explicit Buffered(int rank) {
    statistics = register_buffer("statistics", at::full({3}, static_cast<double>(rank)));
    mask = register_buffer("mask", at::full({4}, rank == 0, at::kBool));
    steps = register_buffer("steps", at::scalar_tensor(rank, at::kLong));
    tiny = register_buffer("tiny", at::full({2}, rank, at::kChar));
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(2, 2));
  at::Tensor statistics, mask, steps, tiny;
};
TEST_P(Replicas, SyncBuffersTakesRankZerosOfEveryType) {
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<Buffered>(group.rank());
    DataParallel replica(handle(groups, group), net, SGD{});
    for (int round = 0; round < 2; ++round) {
      EXPECT_TRUE(net->statistics.equal(at::zeros({3})));
      EXPECT_TRUE(net->mask.all().item<bool>());
      EXPECT_EQ(net->steps.item<int64_t>(), 0);
      EXPECT_TRUE(net->tiny.equal(at::zeros({2}, at::kChar)));
      net->statistics.add_(group.rank());
      net->mask.fill_(group.rank() == 0);
      net->steps.add_(group.rank());
      replica.sync_buffers();
    }
  });
}

TEST(DataParallel, RefusesALossThatIsNotAScalarAndNegativeSamples) {
  const auto group = thread_groups(1)[0];
  auto net = std::make_shared<Mlp>();
  DataParallel replica(group, net, SGD{});
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { replica.backward(net->forward(data_of(2).x), 2); }),
              HasSubstr("8 elements"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { replica.backward(loss_on(*net, data_of(2)), -1); }),
              HasSubstr("-1 samples"));
}

TEST(DataParallel, OverAWorldTakesAnOptimizerWithParameterGroups) {
  tests::Workers workers(2);
  const Data whole = data_of(10);
  Mlp reference;
  const auto grouped = [](Mlp& net) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(net.first->parameters(), std::make_unique<torch::optim::SGDOptions>(0.5));
    groups.emplace_back(net.second->parameters(),
                        std::make_unique<torch::optim::SGDOptions>(0.05));
    return std::make_shared<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.1));
  };
  const auto optimizer = grouped(reference);
  loss_on(reference, whole).backward();
  optimizer->step();
  workers.on_each([&](World& world) {
    auto net = std::make_shared<Mlp>();
    DataParallel replica(world, net, grouped(*net));
    const Data mine = whole.share(world.rank(), world.size());
    replica.step(loss_on(*net, mine), mine.size());
    EXPECT_LT(difference(*net, reference), kClose);
  });
  workers.leave();
}

TEST(DataParallel, OverAWorldRefusesModelsThatDiffer) {
  tests::Workers workers(2);
  workers.on_each([](World& world) {
    auto net = std::make_shared<Mlp>(6, world.rank() == 0 ? 10 : 12);
    EXPECT_THAT(
        message_of(ErrorCode::invalid_argument, [&] { DataParallel replica(world, net, SGD{}); }),
        AllOf(HasSubstr("parameter first."), HasSubstr("[10"), HasSubstr("[12"),
              HasSubstr("rank 0"), HasSubstr("rank 1")));
  });
}

TEST(DataParallel, OverAWorldTakesBuffersOfEveryType) {
  tests::Workers workers(2);
  workers.on_each([](World& world) {
    auto net = std::make_shared<Buffered>(world.rank());
    DataParallel replica(world, net, SGD{});
    EXPECT_TRUE(net->mask.all().item<bool>());
  });
  workers.leave();
}

TEST(DataParallel, RefusesANullOptimizer) {
  World world = World::join({}, Environment());
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] {
                           DataParallel(world, std::make_shared<Mlp>(),
                                        std::shared_ptr<torch::optim::Optimizer>());
                         }),
              HasSubstr("optimizer"));
}

}  // namespace
}  // namespace trireme::data_parallel_test
