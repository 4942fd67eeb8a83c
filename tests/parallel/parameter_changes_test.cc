// Changes that user code makes to parameters after the engine was made: every rank names them, and
// no rank computes with them.
#include "ways.h"

#include <torch/nn/init.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/parallel/shared/content_watch.h>

namespace trireme::parameter_changes_test {
namespace {

using ::testing::HasSubstr;
using tests::data_of;
using tests::loss_on;
using tests::Mlp;
using tests::take_step;
using tests::Way;

at::Tensor loss_of(Mlp& net, const tests::Data& data) {
  // The loss can be computed for a parameter of any type.
  at::Tensor hidden = data.x;
  for (const auto& layer : {net.first, net.second}) {
    hidden = at::matmul(hidden, layer->weight.to(at::kDouble).t());
    if (layer->bias.defined() && layer->bias.numel() == hidden.size(1))
      hidden = hidden + layer->bias.to(at::kDouble);
    hidden = at::tanh(hidden);
  }
  return at::cross_entropy_loss(hidden, data.y);
}

struct Change {
  std::string name;
  std::function<void(Mlp&)> change;
  std::string words;
};
std::vector<Change> changes() {
  return {
      {"to_float", [](Mlp& net) { net.to(at::kFloat); },
       "parameter 'first.weight' has another type"},
      {"to_half", [](Mlp& net) { net.second->to(at::kHalf); },
       "parameter 'second.weight' has another type"},
      {"larger",
       [](Mlp& net) {
         net.first->weight.set_data(at::ones({14, 6}, at::kDouble));
         net.first->bias.set_data(at::ones({14}, at::kDouble));
         net.second->weight.set_data(at::ones({4, 14}, at::kDouble));
       },
       "parameter 'first.weight' has another shape"},
      {"smaller",
       [](Mlp& net) {
         net.first->weight.set_data(net.first->weight.detach().narrow(0, 0, 5));
         net.first->bias.set_data(net.first->bias.detach().narrow(0, 0, 5));
         net.second->weight.set_data(net.second->weight.detach().narrow(1, 0, 5).contiguous());
       },
       "parameter 'first.weight' has another shape"},
      {"transposed",
       [](Mlp& net) { net.first->weight.set_data(at::ones({6, 10}, at::kDouble).t()); },
       "parameter 'first.weight' has another layout"},
      {"replaced",
       [](Mlp& net) {
         torch::nn::Linear other(6, 10);
         other->to(at::kDouble);
         net.first = net.replace_module("first", other);
       },
       "parameter 'first.weight' was replaced after its engine was made"},
  };
}

class Changed : public ::testing::TestWithParam<std::tuple<Way, Change>> {};

std::vector<Way> every_way() {
  std::vector<Way> ways = tests::exact_ways();
  ways.push_back({.name = "local", .replicas = 2, .options = {.local = {.steps = 3}}});
  ways.push_back({.name = "compressed",
                  .workers = 2,
                  .hosts = {"a", "b"},
                  .options = {.compression = {.name = "int8"}}});
  return ways;
}

// The change happens on rank `changer` alone, or on all ranks (-1), after `steps_before` steps.
void expect_named(const Way& way, const Change& change, int changer, int steps_before) {
  std::atomic<int> told{0};
  tests::run(
      way, [] { return std::make_shared<Mlp>(); }, Adam{.lr = 0.01},
      [&](DataParallel& replica, Mlp& net, Group& group) {
        for (int step = 0; step < steps_before; ++step)
          take_step(replica, net, data_of(12), group, loss_of);
        const bool changes = changer < 0 || group.rank() == changer;
        if (changes) change.change(net);
        group.barrier();
        try {
          take_step(replica, net, data_of(12), group, loss_of);
        } catch (const Error& error) {
          EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::invalid_argument));
          EXPECT_THAT(error.what(), HasSubstr(change.words));
          EXPECT_THAT(error.what(), HasSubstr(fmt::format("rank {}", std::max(0, changer))));
          EXPECT_THAT(error.what(), HasSubstr("before Distributed or DataParallel is made"));
          ++told;
        }
      });
  EXPECT_EQ(told, way.size()) << way.name << ", changer " << changer;
}

TEST_P(Changed, IsNamedOnEveryRank) {
  const auto& [way, change] = GetParam();
  expect_named(way, change, -1, 2);
  for (const int steps_before : {0, 2}) expect_named(way, change, way.size() - 1, steps_before);
}

// Two kinds of cases are left out. Where hooks keep the gradient accumulators, LibTorch itself
// refuses another shape in backward, before the engine sees it. With virtual shards gradients lie
// elsewhere, so a replaced parameter is found by the walk every 16 steps (see below).
std::vector<std::tuple<Way, Change>> cases() {
  std::vector<std::tuple<Way, Change>> cases;
  for (const Way& way : every_way())
    for (const Change& change : changes()) {
      const bool has_hooks = !way.hosts.empty();
      const bool reshapes = change.name == "larger" || change.name == "smaller";
      if (has_hooks && reshapes) continue;
      if (way.options.virtual_shards > 0 && change.name == "replaced") continue;
      cases.emplace_back(way, change);
    }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Ways, Changed, ::testing::ValuesIn(cases()), [](const auto& each) {
  return std::get<0>(each.param).name + "_" + std::get<1>(each.param).name;
});

class ChangedInEveryWay : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, ChangedInEveryWay, ::testing::ValuesIn(every_way()),
                         [](const auto& each) { return each.param.name; });

TEST_P(ChangedInEveryWay, AFrozenParameterThatGetsAGradientIsNamedOnEveryRank) {
  const Way& way = GetParam();
  std::atomic<int> told{0};
  tests::run(
      way,
      [] {
        auto net = std::make_shared<Mlp>();
        net->first->bias.requires_grad_(false);
        return net;
      },
      SGD{.lr = 0.1},
      [&](DataParallel& replica, Mlp& net, Group& group) {
        take_step(replica, net, data_of(12), group, loss_of);
        if (group.rank() == group.size() - 1) net.first->bias.requires_grad_(true);
        try {
          take_step(replica, net, data_of(12), group, loss_of);
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("parameter 'first.bias' has a gradient, but it was "
                                              "frozen when its engine was made"));
          EXPECT_THAT(error.what(), HasSubstr(fmt::format("rank {}", group.size() - 1)));
          ++told;
        }
      });
  EXPECT_EQ(told, way.size());
}

TEST_P(ChangedInEveryWay, AnOldGradientOfAParameterThatWasFrozenBeforeIsNoChange) {
  tests::run(
      GetParam(),
      [] {
        auto net = std::make_shared<Mlp>();
        loss_of(*net, data_of(12)).backward();
        net->first->bias.requires_grad_(false);
        net->second->zero_grad();
        net->first->weight.mutable_grad().reset();
        return net;
      },
      SGD{.lr = 0.1},
      [&](DataParallel& replica, Mlp& net, Group& group) {
        ASSERT_TRUE(net.first->bias.grad().defined());
        const at::Tensor before = net.first->bias.detach().clone();
        for (int step = 0; step < 3; ++step) {
          EXPECT_TRUE(take_step(replica, net, data_of(12, step), group, loss_of).updated);
        }
        EXPECT_TRUE(net.first->bias.detach().equal(before));
      });
}

TEST_P(ChangedInEveryWay, AParameterThatIsFrozenLaterStaysAsItIs) {
  tests::run(
      GetParam(), [] { return std::make_shared<Mlp>(); }, SGD{.lr = 0.1, .momentum = 0.9},
      [&](DataParallel& replica, Mlp& net, Group& group) {
        take_step(replica, net, data_of(12), group, loss_of);
        replica.synchronise();
        net.first->bias.requires_grad_(false);
        const at::Tensor before = net.first->bias.detach().clone(),
                         other = net.second->bias.detach().clone();
        EXPECT_TRUE(take_step(replica, net, data_of(12), group, loss_of).updated);
        EXPECT_TRUE(net.first->bias.detach().equal(before));
        EXPECT_FALSE(net.second->bias.detach().equal(other));
      });
}

TEST_P(ChangedInEveryWay, AParameterThatIsRegisteredLaterIsNamedWithinSomeSteps) {
  const Way& way = GetParam();
  std::atomic<int> told{0};
  tests::run(
      way, [] { return std::make_shared<Mlp>(); }, SGD{.lr = 0.1},
      [&](DataParallel& replica, Mlp& net, Group& group) {
        take_step(replica, net, data_of(12), group, loss_of);
        net.register_parameter("late", at::ones({1}, at::kDouble));
        try {
          for (int64_t step = 0; step < ParameterForms::kStepsBetweenWalks; ++step)
            take_step(replica, net, data_of(12), group, loss_of);
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("number 1 of the module's parameters"));
          EXPECT_THAT(error.what(), HasSubstr("was registered after its engine was made"));
          ++told;
        }
      });
  EXPECT_EQ(told, way.size());
}

TEST_P(ChangedInEveryWay, StateThatIsTakenFromAChangedModuleIsRefusedOnEveryRank) {
  const Way& way = GetParam();
  std::atomic<int> told{0};
  tests::run(
      way, [] { return std::make_shared<Mlp>(); }, SGD{.lr = 0.1},
      [&](DataParallel& replica, Mlp& net, Group&) {
        try {
          replica.modify_parameters([&] { net.to(at::kFloat); });
        } catch (const Error& error) {
          EXPECT_THAT(error.what(),
                      HasSubstr("rank 0: parameter 'first.weight' has another type"));
          ++told;
        }
      });
  EXPECT_EQ(told, way.size());
}

// Writes that autograd's version counters do not show.
struct Write {
  std::string name;
  std::function<void(Mlp&)> write;
  std::string parameter;
};
std::vector<Write> writes() {
  return {
      {"mul", [](Mlp& net) { net.first->weight.data().mul_(2); }, "first.weight"},
      // Ranks that all do the following never restore the values together.
      {"negate", [](Mlp& net) { net.second->weight.data().mul_(-3); }, "second.weight"},
      {"one_element",
       [](Mlp& net) { net.second->bias.data().mutable_data_ptr<double>()[3] += 1e-9; },
       "second.bias"},
      {"moved",
       [](Mlp& net) {
         double* const values = net.first->weight.data().mutable_data_ptr<double>();
         std::rotate(values + 1, values + 2, values + 8);
       },
       "first.weight"},
      {"frozen", [](Mlp& net) { net.first->bias.data().mul_(0.5); }, "first.bias"},
      {"draw", [](Mlp& net) { torch::nn::init::normal_(net.first->weight.data()); },
       "first.weight"},
  };
}

class Written : public ::testing::TestWithParam<std::tuple<Way, Write, double>> {};

TEST_P(Written, ThroughDataIsNamedOnEveryRankInTheSameStep) {
  const auto& [way, write, clip_norm] = GetParam();
  for (const auto& [writer, steps_before] :
       {std::pair{-1, 2}, std::pair{0, 0}, std::pair{way.size() - 1, 2}}) {
    std::atomic<int> told{0};
    Way clipped = way;
    clipped.options.clip_norm = clip_norm;
    tests::run(
        clipped,
        [] {
          auto net = std::make_shared<Mlp>();
          net->first->bias.requires_grad_(false);
          return net;
        },
        SGD{.lr = 0.1, .momentum = 0.9},
        [&, &write = write](DataParallel& replica, Mlp& net, Group& group) {
          for (int step = 0; step < steps_before; ++step)
            take_step(replica, net, data_of(12, step), group, loss_of);
          group.barrier();
          if (writer < 0 || group.rank() == writer) write.write(net);
          group.barrier();
          try {
            take_step(replica, net, data_of(12), group, loss_of);
          } catch (const Error& error) {
            EXPECT_THAT(error.what(), HasSubstr("'" + write.parameter + "' was written in place"));
            EXPECT_THAT(error.what(), HasSubstr("modify_parameters"));
            ++told;
          }
        });
    EXPECT_EQ(told, way.size()) << "writer " << writer << ", step " << steps_before;
  }
}
std::vector<Way> shared_ways() {
  std::vector<Way> ways = tests::exact_ways();
  std::erase_if(ways, [](const Way& way) { return !way.options.share_parameters; });
  return ways;
}
INSTANTIATE_TEST_SUITE_P(Ways, Written,
                         ::testing::Combine(::testing::ValuesIn(shared_ways()),
                                            ::testing::ValuesIn(writes()),
                                            ::testing::Values(0.0, 0.1)),
                         [](const auto& each) {
                           return std::get<0>(each.param).name + "_" +
                                  std::get<1>(each.param).name +
                                  (std::get<2>(each.param) > 0 ? "_clipped" : "");
                         });

TEST(SharedContents, AWriteInsideModifyParametersIsAccepted) {
  for (const Way& way : shared_ways())
    tests::run(
        way, [] { return std::make_shared<Mlp>(); }, SGD{.lr = 0.1},
        [&](DataParallel& replica, Mlp& net, Group& group) {
          take_step(replica, net, data_of(12), group, loss_of);
          replica.modify_parameters([&] { net.first->weight.data().mul_(0.5); });
          EXPECT_TRUE(take_step(replica, net, data_of(12), group, loss_of).updated);
        });
}

// A wide parameter has several runs in the shard of each rank.
struct Wide : Mlp {
  at::Tensor wide = register_parameter("wide", at::ones({200'000}, at::kDouble));
};
at::Tensor wide_loss(Wide& net, const tests::Data& data) {
  return loss_of(net, data) + (net.wide * 1e-6).sum();
}

TEST(SharedContents, AWriteToTheWholeOfAWideParameterIsNamedInTheNextStep) {
  for (const Way& way : shared_ways())
    for (const int steps_before : {0, 1, 4, 9}) {
      std::atomic<int> told{0};
      tests::run(
          way, [] { return std::make_shared<Wide>(); }, SGD{.lr = 0.1},
          [&](DataParallel& replica, Wide& net, Group& group) {
            for (int step = 0; step < steps_before; ++step)
              take_step(replica, net, data_of(12, step), group, wide_loss);
            group.barrier();
            if (group.rank() == group.size() - 1) net.wide.data().mul_(2);
            group.barrier();
            try {
              take_step(replica, net, data_of(12), group, wide_loss);
            } catch (const Error& error) {
              EXPECT_THAT(error.what(), HasSubstr("'wide' was written in place"));
              ++told;
            }
          });
      EXPECT_EQ(told, way.size()) << way.name << ", step " << steps_before;
    }
}

OptimizerFactory over_the_second_layer() {
  return [](const std::vector<NamedTensor>& parameters) {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : parameters)
      if (name.starts_with("second.")) tensors.push_back(tensor);
    return std::make_shared<torch::optim::SGD>(tensors, torch::optim::SGDOptions(0.1));
  };
}
void add_the_first_layer(DataParallel& replica, Mlp& net) {
  replica.optimizer().add_param_group(
      torch::optim::OptimizerParamGroup({net.first->weight, net.first->bias}));
}

// The write comes before, with or after the call that gives the parameter to the optimizer.
TEST(SharedContents, AWriteToATrainableParameterOutsideTheOptimizerIsNamed) {
  for (const Way& way : shared_ways())
    for (const std::string when : {"before", "with", "after"}) {
      std::atomic<int> told{0};
      tests::run(
          way, [] { return std::make_shared<Mlp>(); }, over_the_second_layer(),
          [&](DataParallel& replica, Mlp& net, Group& group) {
            take_step(replica, net, data_of(12), group, loss_of);
            if (when != "before") add_the_first_layer(replica, net);
            if (when == "after") take_step(replica, net, data_of(12), group, loss_of);
            group.barrier();
            net.first->weight.data().mul_(3);
            group.barrier();
            // Outside the optimizer each rank looks at one of two parameters in a step.
            for (int step = 0; step < (when == "before" ? 2 : 1); ++step) {
              try {
                take_step(replica, net, data_of(12), group, loss_of);
              } catch (const Error& error) {
                EXPECT_THAT(error.what(), HasSubstr("'first.weight' was written in place"));
                ++told;
                break;
              }
            }
          });
      EXPECT_EQ(told, way.size()) << way.name << ", " << when;
    }
}

TEST(SharedContents, AWriteBeforeModifyParametersIsNamedAndNotTaken) {
  for (const Way& way : shared_ways())
    for (const bool is_trained : {true, false}) {
      std::atomic<int> told{0};
      tests::run(
          way,
          [is_trained] {
            auto net = std::make_shared<Mlp>();
            net->first->weight.requires_grad_(is_trained);
            return net;
          },
          SGD{.lr = 0.1},
          [&](DataParallel& replica, Mlp& net, Group& group) {
            take_step(replica, net, data_of(12), group, loss_of);
            EXPECT_NO_THROW(replica.check_parameters());
            group.barrier();
            net.first->weight.data().mul_(0.5);
            group.barrier();
            for (const auto& call : {std::function<void()>([&] { replica.check_parameters(); }),
                                     std::function<void()>([&] {
                                       replica.modify_parameters([] { FAIL() << "it ran"; });
                                     })}) {
              try {
                call();
              } catch (const Error& error) {
                EXPECT_THAT(error.what(), HasSubstr("'first.weight' was written in place"));
                ++told;
              }
            }
          });
      EXPECT_EQ(told, 2 * way.size()) << way.name << ", trained: " << is_trained;
    }
}

TEST(SharedContents, AnUnusedParameterIsCheckedWhenItIsUsedAgain) {
  const Way way{.name = "", .replicas = 2, .options = {.share_parameters = true}};
  std::atomic<int> told{0};
  tests::run(
      way, [] { return std::make_shared<Mlp>(); }, SGD{.lr = 0.1},
      [&](DataParallel& replica, Mlp& net, Group& group) {
        const auto rest = [](Mlp& mine, const tests::Data& data) {
          return mine.second(at::ones({data.size(), 10}, at::kDouble)).sum();
        };
        take_step(replica, net, data_of(12), group, rest);
        group.barrier();
        net.first->weight.data().mul_(2);
        group.barrier();
        take_step(replica, net, data_of(12), group, rest);
        try {
          take_step(replica, net, data_of(12), group, loss_of);
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("'first.weight' was written in place"));
          ++told;
        }
      });
  EXPECT_EQ(told, 2);
}

// Parameters of 20 runs and of 2 runs, which lie behind each other.
struct WatchedValues {
  static constexpr int64_t kRun = 64;
  void update() {
    for (const plan::Slice& piece : pieces)
      for (int64_t from = piece.from; from < piece.to; from += kRun) {
        const plan::Slice run{piece.parameter, from, from + kRun};
        if (!watch.is_as_left(run)) changed = piece.parameter;
        for (float& value : values_of(run)) value += 0.5F;
        watch.remember(run);
      }
  }
  std::span<float> values_of(const plan::Slice& piece) {
    return std::span(values).subspan(static_cast<size_t>(piece.parameter * 20 * kRun + piece.from),
                                     static_cast<size_t>(piece.to - piece.from));
  }
  std::vector<float> values = std::vector<float>(22 * kRun, 1.0F);
  std::vector<plan::Slice> pieces = {{0, 0, 20 * kRun}, {1, 0, 2 * kRun}};
  int looks = 0, changed = -1;
  shared::ContentWatch watch{pieces, kRun, 8, [this](const plan::Slice& run) {
                               ++looks;
                               return std::as_bytes(values_of(run));
                             }};
};

TEST(ContentWatch, SeesAWriteToTheWholeOfAParameterInEveryTurn) {
  for (size_t parameter = 0; parameter < 2; ++parameter)
    for (int updates = 0; updates < 20; ++updates) {
      WatchedValues watched;
      watched.watch.remember_all();
      for (int i = 0; i < updates; ++i) watched.update();
      EXPECT_EQ(watched.watch.look(), -1);
      for (float& value : watched.values_of(watched.pieces[parameter])) value *= 2;
      EXPECT_EQ(watched.watch.look(), static_cast<int>(parameter));
      EXPECT_EQ(watched.changed, -1);
      watched.update();
      EXPECT_EQ(watched.changed, static_cast<int>(parameter));
    }
}

TEST(ContentWatch, SeesAWriteThatIsRepeatedInOneRunWithinEightUpdates) {
  for (int64_t run = 0; run < 20; ++run) {
    WatchedValues watched;
    watched.watch.remember_all();
    int updates = 0;
    while (watched.changed < 0 && updates < 100) {
      watched.values_of({0, run * WatchedValues::kRun, (run + 1) * WatchedValues::kRun})[7] += 1;
      watched.update();
      ++updates;
    }
    EXPECT_LE(updates, 8) << "run " << run;
  }
}

TEST(ContentWatch, LooksAtAllOfAShortParameterAndAtAnEighthOfALongOne) {
  WatchedValues watched;
  watched.watch.remember_all();
  for (int update = 0; update < 9; ++update) {
    watched.looks = 0;
    EXPECT_EQ(watched.watch.look(), -1);
    EXPECT_GE(watched.looks, 2 + 2);
    EXPECT_LE(watched.looks, 3 + 2);
    watched.looks = 0;
    watched.update();
    EXPECT_LE(watched.looks, 2 * (3 + 2));  // Each run is compared and remembered.
  }
  watched.values_of({1, 0, 2 * WatchedValues::kRun})[100] += 1;
  EXPECT_EQ(watched.watch.look(), 1);
}

TEST(Checksum, ChangesWithEveryBitAndEveryOrder) {
  for (const size_t words : {size_t{1}, size_t{31}, size_t{32}, size_t{100}, size_t{4096}}) {
    std::vector<float> values(words);
    for (size_t i = 0; i < words; ++i) values[i] = std::sin(static_cast<float>(i + 1)) * 0.1F;
    const auto sum = [&] { return shared::checksum(std::as_bytes(std::span(values))); };
    const uint64_t first = sum();
    EXPECT_EQ(sum(), first);
    for (size_t i = 0; i < words; i += 1 + words / 50)
      for (int bit = 0; bit < 32; bit += 3) {
        const float before = values[i];
        values[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(before) ^ 1U << bit);
        EXPECT_NE(sum(), first) << "word " << i << ", bit " << bit;
        values[i] = before;
      }
    if (words == 1) continue;
    for (const size_t distance : {size_t{1}, words / 2, words - 1}) {
      std::swap(values[0], values[distance]);
      EXPECT_NE(sum(), first) << distance;
      std::swap(values[0], values[distance]);
    }
    for (const float factor : {-1.0F, 2.0F, 0.5F, 0.0F}) {
      const std::vector<float> before = values;
      for (float& value : values) value *= factor;
      EXPECT_NE(sum(), first) << factor;
      values = before;
    }
    EXPECT_EQ(sum(), first);
  }
}

}  // namespace
}  // namespace trireme::parameter_changes_test
