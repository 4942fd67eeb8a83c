// One copy of parameters and optimizer state for each host, updated inside the exchange: the
// result is that of torch::optim on one device.
#include "models.h"

#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/parallel/layerwise.h>

#include "../base/expect_error.h"

namespace trireme::shared_exchange_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::Data;
using tests::data_of;
using tests::difference;
using tests::Mlp;
using tests::on_ranks;
using tests::trainable_of;
using tests::Workers;

constexpr double kClose = 1e-11;
constexpr int kSteps = 6;

template <typename Optimizer, typename Options>
OptimizerFactory made_of(const Options& options) {
  return [options](const std::vector<NamedTensor>& parameters) {
    return std::make_shared<Optimizer>(trainable_of(parameters), options);
  };
}

struct Rule {
  std::string name;
  OptimizerFactory factory;
};
std::vector<Rule> rules() {
  namespace o = torch::optim;
  return {
      {"sgd", SGD{.lr = 0.1}},
      {"momentum", SGD{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01}},
      {"nesterov", SGD{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}},
      {"adam", Adam{.lr = 0.01, .weight_decay = 0.02}},
      {"amsgrad", Adam{.lr = 0.01, .amsgrad = true}},
      {"adamw", AdamW{.lr = 0.01, .weight_decay = 0.1}},
      {"rmsprop", RMSprop{.lr = 0.01, .weight_decay = 0.01}},
      {"rmsprop_momentum", RMSprop{.lr = 0.01, .momentum = 0.8}},
      {"rmsprop_centered", RMSprop{.lr = 0.01, .momentum = 0.8, .centered = true}},
      {"adagrad", Adagrad{.lr = 0.05, .lr_decay = 0.1, .weight_decay = 0.01}},
      {"lars", made_of<LarsOptimizer>(LarsOptions(1).trust(0.02).weight_decay(0.01))},
      {"lamb", made_of<LambOptimizer>(LambOptions(0.01).weight_decay(0.05))},
  };
}

struct Setting {
  std::string name;
  int workers = 1, replicas = 1;
  std::vector<std::string> hosts;
  int size() const { return workers * replicas; }
};
std::vector<Setting> settings() {
  return {{"threads_1", 1, 1},
          {"threads_2", 1, 2},
          {"threads_3", 1, 3},
          {"processes_2", 2, 1},
          {"processes_3", 3, 1},
          {"processes_2x2", 2, 2},
          {"hosts_aab", 3, 1, {"a", "a", "b"}}};
}

class Shared : public ::testing::TestWithParam<std::tuple<Setting, Rule>> {
 protected:
  static const Setting& setting() { return std::get<0>(GetParam()); }
  static const Rule& rule() { return std::get<1>(GetParam()); }
};

// Runs body(replica, net, group) on every rank of `setting`.
template <typename Body>
void run(const Setting& setting, const OptimizerFactory& optimizer, DataParallelOptions options,
         Body body) {
  options.share_parameters = true;
  std::optional<Workers> workers;
  tests::Groups groups;
  if (setting.workers == 1) {
    groups = tests::thread_groups(setting.replicas);
  } else {
    workers.emplace(setting.workers, tests::world_options(), setting.hosts);
    groups = workers->make_groups(setting.replicas);
  }
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<Mlp>();
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, optimizer, options);
    EXPECT_EQ(replica.shares_parameters(), setting.size() > 1);
    body(replica, *net, group);
  });
  if (workers) workers->leave();
}

// Trains one device with the optimizer's own step.
std::shared_ptr<Mlp> trained_alone(const OptimizerFactory& factory, double clip_norm = 0) {
  auto net = std::make_shared<Mlp>();
  const auto optimizer = factory(state_of(*net).parameters);
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    loss_on(*net, data_of(13, step)).backward();
    if (clip_norm > 0) torch::nn::utils::clip_grad_norm_(net->parameters(), clip_norm);
    optimizer->step();
  }
  return net;
}

TEST_P(Shared, TrainsAsTheOptimizerAloneOnTheWholeBatch) {
  const auto expected = trained_alone(rule().factory);
  run(setting(), rule().factory, {}, [&](DataParallel& replica, Mlp& net, Group& group) {
    for (int step = 0; step < kSteps; ++step) {
      const Data mine = data_of(13, step).share(group.rank(), group.size());
      const StepOutcome outcome = replica.step(loss_on(net, mine), mine.size());
      EXPECT_TRUE(outcome.updated);
      EXPECT_EQ(outcome.samples, 13);
    }
    EXPECT_LT(difference(net, *expected), kClose);
  });
}

TEST_P(Shared, ClipsByTheNormOfTheWholeGradient) {
  const auto expected = trained_alone(rule().factory, 0.05);
  run(setting(), rule().factory, {.clip_norm = 0.05},
      [&](DataParallel& replica, Mlp& net, Group& group) {
        for (int step = 0; step < kSteps; ++step) {
          const Data mine = data_of(13, step).share(group.rank(), group.size());
          EXPECT_GT(replica.step(loss_on(net, mine), mine.size(), 13).gradient_norm, 0.05);
        }
        EXPECT_LT(difference(net, *expected), kClose);
      });
}

INSTANTIATE_TEST_SUITE_P(Settings, Shared,
                         ::testing::Combine(::testing::ValuesIn(settings()),
                                            ::testing::ValuesIn(rules())),
                         [](const auto& each) {
                           return std::get<0>(each.param).name + "_" +
                                  std::get<1>(each.param).name;
                         });

class SharedBy : public ::testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Settings, SharedBy,
                         ::testing::Values(Setting{"threads", 1, 2}, Setting{"processes", 2, 1}),
                         [](const auto& each) { return each.param.name; });

TEST_P(SharedBy, MicroBatchesAddUp) {
  const auto expected = trained_alone(SGD{.lr = 0.1, .momentum = 0.9});
  run(GetParam(), SGD{.lr = 0.1, .momentum = 0.9}, {},
      [&](DataParallel& replica, Mlp& net, Group& group) {
        for (int step = 0; step < kSteps; ++step) {
          const Data mine = data_of(13, step).share(group.rank(), group.size());
          for (int part = 0; part < 3; ++part) {
            const Data piece = mine.share(part, 3);
            replica.backward(loss_on(net, piece), piece.size(), 13);
          }
          replica.step();
        }
        EXPECT_LT(difference(net, *expected), kClose);
      });
}

TEST_P(SharedBy, AReplicaWithoutSamplesContributesNothing) {
  const auto expected = trained_alone(Adam{.lr = 0.01});
  run(GetParam(), Adam{.lr = 0.01}, {}, [&](DataParallel& replica, Mlp& net, Group& group) {
    for (int step = 0; step < kSteps; ++step) {
      if (group.rank() == step % 2) {
        replica.step(loss_on(net, data_of(13, step)), 13);
      } else {
        replica.step(at::Tensor(), 0);
      }
    }
    EXPECT_LT(difference(net, *expected), kClose);
  });
}

TEST_P(SharedBy, RepeatedRunsAreBitIdentical) {
  std::string first;
  for (int repeat = 0; repeat < 2; ++repeat) {
    run(GetParam(), AdamW{.lr = 0.01}, {}, [&](DataParallel& replica, Mlp& net, Group& group) {
      for (int step = 0; step < kSteps; ++step) {
        const Data mine = data_of(13, step).share(group.rank(), group.size());
        replica.step(loss_on(net, mine), mine.size());
      }
      if (group.rank() != 0) return;
      const std::string hash = sha256_of(replica.state().parameters);
      if (repeat == 0) first = hash;
      EXPECT_EQ(hash, first);
    });
  }
}

TEST_P(SharedBy, ParametersLieInOneMemory) {
  run(GetParam(), SGD{.lr = 0.1}, {}, [&](DataParallel& replica, Mlp& net, Group& group) {
    replica.modify_parameters([&] { net.first->bias.fill_(7); });
    EXPECT_TRUE(net.first->bias.detach().equal(at::full({10}, 7.0, at::kDouble)));
    group.barrier();
    if (group.rank() == 1) net.first->bias.detach().fill_(8);
    group.barrier();
    EXPECT_TRUE(net.first->bias.detach().equal(at::full({10}, 8.0, at::kDouble)));
  });
}

TEST_P(SharedBy, AParameterWithoutGradientIsNamedAndLeftAlone) {
  run(GetParam(), SGD{.lr = 0.1}, {}, [&](DataParallel& replica, Mlp& net, Group&) {
    const at::Tensor before = net.first->bias.detach().clone();
    const StepOutcome outcome = replica.step(net.second(at::ones({4, 10}, at::kDouble)).sum(), 4);
    EXPECT_THAT(outcome.unused, ::testing::ElementsAre(0, 1));
    EXPECT_TRUE(net.first->bias.detach().equal(before));
  });
}

TEST_P(SharedBy, ANonfiniteLossUpdatesNothing) {
  run(GetParam(), SGD{.lr = 0.1}, {}, [&](DataParallel& replica, Mlp& net, Group& group) {
    const std::string before = sha256_of(replica.state().parameters);
    const double factor = group.rank() == 1 ? std::nan("") : 1.0;
    const StepOutcome outcome = replica.step(loss_on(net, data_of(4)) * factor, 4);
    EXPECT_THAT(outcome.nonfinite_ranks, ::testing::ElementsAre(1));
    EXPECT_FALSE(outcome.updated);
    EXPECT_EQ(sha256_of(replica.state().parameters), before);
  });
}

TEST_P(SharedBy, AStepWhoseGradientsOverflowDoesNotCountForTheOptimizer) {
  const auto expected = trained_alone(Adam{.lr = 0.01});
  run(GetParam(), Adam{.lr = 0.01}, {.gradient_norm = true},
      [&](DataParallel& replica, Mlp& net, Group& group) {
        for (int step = 0; step < kSteps; ++step) {
          const Data mine = data_of(13, step).share(group.rank(), group.size());
          if (step % 2 == 0) {
            const at::Tensor loss =
                (net.first->weight.sum() * 0).sqrt();  // The loss is finite, but its slope is not.
            const StepOutcome skipped = replica.step(loss, 4);
            EXPECT_TRUE(skipped.nonfinite_gradients);
            EXPECT_FALSE(skipped.updated);
          }
          EXPECT_TRUE(replica.step(loss_on(net, mine), mine.size()).updated);
        }
        EXPECT_LT(difference(net, *expected), kClose);
      });
}

// A change that user code may make to a parameter, and the words of the error that reports it.
struct Meddling {
  std::string name;
  std::function<void(Mlp&)> change;
  std::string words;
};
class Meddled : public ::testing::TestWithParam<std::tuple<Setting, Meddling>> {};

TEST_P(Meddled, IsReportedOnEveryRankAndUpdatesNothing) {
  const auto& [setting, meddling] = GetParam();
  std::atomic<int> told{0};
  const auto endings_expected = setting.size();
  run(setting, SGD{.lr = 0.1}, {},
      [&, &meddling = meddling](DataParallel& replica, Mlp& net, Group& group) {
        replica.step(loss_on(net, data_of(4)), 4);
        if (group.rank() == 1) meddling.change(net);
        group.barrier();
        try {
          replica.step(loss_on(net, data_of(4)), 4);
        } catch (const Error& error) {
          EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::invalid_argument));
          EXPECT_THAT(error.what(),
                      AllOf(HasSubstr("rank 1"), HasSubstr("'first.weight'"),
                            HasSubstr(meddling.words), HasSubstr("modify_parameters")));
          ++told;
        }
      });
  EXPECT_EQ(told, endings_expected);
}
std::vector<Meddling> meddlings() {
  return {{"to", [](Mlp& net) { net.first->weight.set_data(net.first->weight.detach().clone()); },
           "another storage"},
          {"mul",
           [](Mlp& net) {
             const at::NoGradGuard no_grad;
             net.first->weight.mul_(2);
           },
           "written in place"}};
}
INSTANTIATE_TEST_SUITE_P(Ways, Meddled,
                         ::testing::Combine(::testing::Values(Setting{"threads", 1, 2},
                                                              Setting{"processes", 2, 1}),
                                            ::testing::ValuesIn(meddlings())),
                         [](const auto& each) {
                           return std::get<0>(each.param).name + "_" +
                                  std::get<1>(each.param).name;
                         });

TEST_P(SharedBy, LoadingInsideModifyParametersIsTaken) {
  run(GetParam(), SGD{.lr = 0.1}, {}, [&](DataParallel& replica, Mlp& net, Group&) {
    replica.modify_parameters(
        [&] { net.first->weight.set_data(at::full({10, 6}, 0.25, at::kDouble)); });
    EXPECT_TRUE(net.first->weight.detach().equal(at::full({10, 6}, 0.25, at::kDouble)));
    EXPECT_TRUE(replica.step(loss_on(net, data_of(4)), 4).updated);
  });
}

TEST_P(SharedBy, LoadedOptimizerStateIsUsed) {
  const auto expected = trained_alone(Adam{.lr = 0.01});
  OptimizerState saved;
  std::vector<at::Tensor> parameters;
  run(GetParam(), Adam{.lr = 0.01}, {}, [&](DataParallel& replica, Mlp& net, Group& group) {
    for (int step = 0; step < 3; ++step) {
      const Data mine = data_of(13, step).share(group.rank(), group.size());
      replica.step(loss_on(net, mine), mine.size());
    }
    if (group.rank() != 0) return;
    saved = state_of(replica.optimizer(), replica.state().parameters);
    for (auto& [name, tensor] : saved.tensors) tensor = tensor.clone();
    for (const auto& [name, tensor] : replica.state().parameters)
      parameters.push_back(tensor.detach().clone());
  });
  run(GetParam(), Adam{.lr = 0.01}, {}, [&](DataParallel& replica, Mlp& net, Group& group) {
    replica.modify_parameters([&] {
      for (size_t i = 0; i < parameters.size(); ++i)
        replica.state().parameters[i].tensor.copy_(parameters[i]);
    });
    load_state(replica.optimizer(), replica.state().parameters, saved);
    for (int step = 3; step < kSteps; ++step) {
      const Data mine = data_of(13, step).share(group.rank(), group.size());
      replica.step(loss_on(net, mine), mine.size());
    }
    EXPECT_LT(difference(net, *expected), kClose);
  });
}

// The places of the state are the same memory as before, but their old values must not remain.
TEST_P(SharedBy, StateThatALoadRemovesStartsAtZero) {
  const auto expected = trained_alone(Adam{.lr = 0.01, .amsgrad = true});
  run(GetParam(), Adam{.lr = 0.01, .amsgrad = true}, {},
      [&](DataParallel& replica, Mlp& net, Group& group) {
        const OptimizerState before = state_of(replica.optimizer(), replica.state().parameters);
        std::vector<at::Tensor> values;
        for (const auto& [name, tensor] : replica.state().parameters)
          values.push_back(tensor.detach().clone());
        const auto train = [&](int steps) {
          for (int step = 0; step < steps; ++step) {
            const Data mine = data_of(13, step).share(group.rank(), group.size());
            replica.step(loss_on(net, mine), mine.size());
          }
        };
        train(3);
        replica.modify_parameters([&] {
          for (size_t i = 0; i < values.size(); ++i)
            replica.state().parameters[i].tensor.copy_(values[i]);
        });
        load_state(replica.optimizer(), replica.state().parameters, before);
        train(kSteps);
        EXPECT_LT(difference(net, *expected), kClose);
      });
}

TEST(SharedExchange, AnOptimizerOfTheUsersOwnStillWorks) {
  const auto groups = tests::thread_groups(2);
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<Mlp>();
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, tests::recording(),
                         {.share_parameters = true});
    EXPECT_FALSE(replica.shares_parameters());
    EXPECT_TRUE(replica.step(loss_on(*net, data_of(4)), 4).updated);
  });
}

// LARS and LAMB, written again with tensor operations.
TEST(Layerwise, LarsIsTheAlgorithmOfThePaper) {
  auto net = std::make_shared<Mlp>();
  const double lr = 0.5, mu = 0.9, decay = 0.01, trust = 0.02;
  LarsOptimizer optimizer(net->parameters(),
                          LarsOptions(lr).momentum(mu).weight_decay(decay).trust(trust));
  std::vector<at::Tensor> weights, momenta;
  for (const auto& parameter : net->parameters()) {
    weights.push_back(parameter.detach().clone());
    momenta.push_back(at::zeros_like(parameter));
  }
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_on(*net, data_of(9, step)).backward();
    for (size_t i = 0; i < weights.size(); ++i) {
      const at::Tensor gradient = net->parameters()[i].grad();
      const bool adapts = weights[i].dim() > 1;
      const double wd = adapts ? decay : 0;
      const double norm = weights[i].norm().item<double>(), slope = gradient.norm().item<double>();
      const double local = adapts ? trust * norm / (slope + wd * norm) : 1;
      momenta[i] = mu * momenta[i] + lr * local * (gradient + wd * weights[i]);
      weights[i] = weights[i] - momenta[i];
    }
    optimizer.step();
    for (size_t i = 0; i < weights.size(); ++i)
      EXPECT_LT(difference(net->parameters()[i].detach(), weights[i]), 1e-12);
  }
}

TEST(Layerwise, LambIsTheAlgorithmOfThePaper) {
  auto net = std::make_shared<Mlp>();
  const double lr = 0.01, b1 = 0.9, b2 = 0.999, eps = 1e-6, decay = 0.05;
  LambOptimizer optimizer(net->parameters(), LambOptions(lr).weight_decay(decay));
  std::vector<at::Tensor> weights, m, v;
  for (const auto& parameter : net->parameters()) {
    weights.push_back(parameter.detach().clone());
    m.push_back(at::zeros_like(parameter));
    v.push_back(at::zeros_like(parameter));
  }
  for (int step = 1; step <= kSteps; ++step) {
    optimizer.zero_grad();
    loss_on(*net, data_of(9, step)).backward();
    for (size_t i = 0; i < weights.size(); ++i) {
      const at::Tensor gradient = net->parameters()[i].grad();
      m[i] = b1 * m[i] + (1 - b1) * gradient;
      v[i] = b2 * v[i] + (1 - b2) * gradient * gradient;
      const at::Tensor direction =
          (m[i] / (1 - std::pow(b1, step))) / ((v[i] / (1 - std::pow(b2, step))).sqrt() + eps) +
          decay * weights[i];
      const double ratio = weights[i].dim() > 1
                               ? weights[i].norm().item<double>() / direction.norm().item<double>()
                               : 1;
      weights[i] = weights[i] - lr * ratio * direction;
    }
    optimizer.step();
    for (size_t i = 0; i < weights.size(); ++i)
      EXPECT_LT(difference(net->parameters()[i].detach(), weights[i]), 1e-12);
  }
}

}  // namespace
}  // namespace trireme::shared_exchange_test
