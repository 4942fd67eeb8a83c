// Strategies by name, and the engine of those that come with Trireme.
#include "engines.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <algorithm>

#include "../base/expect_error.h"

namespace trireme::engine_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using tests::Data;
using tests::data_of;
using tests::load;
using tests::Mlp;
using tests::names_in;
using tests::on_ranks;
using tests::setting_of;
using tests::take_step;
using tests::thread_groups;

Strategy a_strategy() {
  return {[](const EngineSetting&) -> std::unique_ptr<Engine> { return nullptr; }};
}
std::string refusal(const std::string& name, Strategy strategy = a_strategy()) {
  return message_of(ErrorCode::invalid_argument, [&] { register_strategy(name, strategy); });
}

TEST(StrategyRegistry, ListsTheStrategiesThatComeWithTriremeInOrder) {
  const std::vector<std::string> names = strategy_names();
  EXPECT_TRUE(std::ranges::is_sorted(names));
  for (const char* name : {"one_device", "mirrored", "multi_worker", "central_storage"})
    EXPECT_THAT(names, Contains(name));
}

TEST(StrategyRegistry, TheStrategiesThatComeWithTriremeHaveAllFeatures) {
  for (const char* name : {"one_device", "mirrored", "multi_worker"}) {
    const StrategyFeatures can = find_strategy(name).features;
    EXPECT_TRUE(can.clip_norm && can.compression && can.local_steps && can.virtual_shards &&
                can.loss_scaling && can.sync_batch_norm && can.equal_replicas)
        << name;
  }
}

// A strategy stays in the registry, so the test names one that no earlier run of it has added.
TEST(StrategyRegistry, FindsAStrategyThatWasAddedAndRefusesItsNameFromThenOn) {
  static int added = 0;
  const std::string name = fmt::format("engine_test_{}", ++added);
  Strategy strategy = a_strategy();
  strategy.features.compression = true;
  register_strategy(name, strategy);
  EXPECT_THAT(strategy_names(), Contains(name));
  EXPECT_TRUE(find_strategy(name).features.compression);
  EXPECT_FALSE(find_strategy(name).features.clip_norm);
  EXPECT_THAT(refusal(name), AllOf(HasSubstr("'" + name + "'"), HasSubstr("already exists")));
}

TEST(StrategyRegistry, RefusesNamesThatAreTakenOrMeanSomethingElse) {
  for (const char* name : {"one_device", "mirrored", "multi_worker"})
    EXPECT_THAT(refusal(name), HasSubstr(fmt::format("'{}'", name)));
  EXPECT_THAT(refusal("auto"), HasSubstr("'auto'"));
  EXPECT_THAT(refusal(""), HasSubstr("''"));
  EXPECT_THAT(refusal("nothing_behind_it", Strategy{}), HasSubstr("function"));
  EXPECT_THAT(strategy_names(), Not(Contains("nothing_behind_it")));
}

TEST(StrategyRegistry, OffersTheKnownNamesForAnUnknownOne) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { find_strategy("telepathy"); }),
              AllOf(HasSubstr("strategy 'telepathy' is not known"), HasSubstr("auto"),
                    HasSubstr("one_device"), HasSubstr("mirrored"), HasSubstr("multi_worker")));
}

std::unique_ptr<Engine> mirrored(const EngineSetting& setting) {
  return find_strategy("mirrored").make(setting);
}

struct Counting : Mlp {
  at::Tensor seen = register_buffer("seen", at::zeros({1}, at::kDouble));
};

TEST(MirroredEngine, ShowsModelAndOptimizerByTheirNames) {
  const auto groups = thread_groups(2);
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Counting>();
    const auto engine = mirrored(setting_of(groups[static_cast<size_t>(group.rank())], net));
    take_step(*engine, data_of(12));
    const StateView view = engine->state().tensors;
    EXPECT_THAT(names_in(view, StateKind::parameter),
                ElementsAre("first.weight", "first.bias", "second.weight", "second.bias"));
    EXPECT_THAT(names_in(view, StateKind::buffer), ElementsAre("seen"));
    EXPECT_THAT(names_in(view, StateKind::optimizer),
                ElementsAre("momentum_buffer/first.weight", "momentum_buffer/first.bias",
                            "momentum_buffer/second.weight", "momentum_buffer/second.bias"));
    EXPECT_EQ(view.size(), 9U);
    EXPECT_TRUE(view[0].tensor.is_same(net->first->weight)) << "the tensors are no copies";
    EXPECT_EQ(engine->state().counters.at("optimizer").at("kind").get<std::string>(), "SGD");
  });
}

TEST(MirroredEngine, ShowsErrorsOfCompressionAsResiduals) {
  const auto groups = thread_groups(2);
  on_ranks(groups, [&](Group& group) {
    EngineSetting setting =
        setting_of(groups[static_cast<size_t>(group.rank())], std::make_shared<Mlp>());
    setting.options.compression.name = "int8";
    const auto engine = mirrored(setting);
    take_step(*engine, data_of(12));
    EXPECT_THAT(names_in(engine->state().tensors, StateKind::residual),
                UnorderedElementsAre("error/first.weight", "error/first.bias",
                                     "error/second.weight", "error/second.bias"));
  });
}

TEST(MirroredEngine, ComputesItsShareOfEachBatch) {
  const auto groups = thread_groups(3);
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Mlp>();
    const auto engine = mirrored(setting_of(groups[static_cast<size_t>(group.rank())], net));
    EXPECT_EQ(engine->data_share().index, group.rank());
    EXPECT_EQ(engine->data_share().count, 3);
    const Data data = data_of(5);
    EXPECT_TRUE(engine->evaluate(batch_of(data, 0, 1)).equal(net->forward(data.x)));
    EXPECT_EQ(engine->plan().ranks(), 3);
    EXPECT_EQ(engine->plan().engine, "data_parallel");
  });
}

struct Form {
  std::string name;
  int ranks = 2;
  at::ScalarType type = at::kDouble;
  int passes = 1;
  DataParallelOptions options = {};
  OptimizerFactory optimizer = SGD{.lr = 0.1, .momentum = 0.9};
};
class EngineByForm : public ::testing::TestWithParam<Form> {
 protected:
  std::shared_ptr<Mlp> make_net() const {
    const auto net = std::make_shared<Mlp>();
    net->to(GetParam().type);
    return net;
  }
  EngineSetting setting(std::shared_ptr<Group> group, std::shared_ptr<Mlp> net) const {
    EngineSetting setting = setting_of(std::move(group), std::move(net), GetParam().optimizer);
    setting.options = GetParam().options;
    return setting;
  }
  // A size that neither ranks nor passes divide.
  Data data(int step) const { return data_of(17, step, GetParam().type); }
};
std::vector<Form> forms_of_copies() {
  return {{"alone", 1},
          {"two"},
          {"three", 3},
          {"accumulated", 2, at::kDouble, 3},
          {"clipped", 3, at::kDouble, 2, {.clip_norm = 0.1}},
          {"masters", 2, at::kBFloat16},
          {"masters_of_one", 1, at::kBFloat16},
          {"masters_accumulated", 3, at::kBFloat16, 3},
          {"adam", 2, at::kDouble, 1, {}, Adam{.lr = 0.01}}};
}
std::vector<Form> all_forms() {
  std::vector<Form> forms = forms_of_copies();
  const DataParallelOptions shared{.share_parameters = true};
  forms.push_back({"shared", 2, at::kDouble, 1, shared});
  forms.push_back({"shared_accumulated", 3, at::kDouble, 3, shared});
  return forms;
}
INSTANTIATE_TEST_SUITE_P(Forms, EngineByForm, ::testing::ValuesIn(all_forms()),
                         [](const auto& each) { return each.param.name; });

TEST_P(EngineByForm, StepsAsDataParallelUsedByHandBitForBit) {
  const int ranks = GetParam().ranks, passes = GetParam().passes;
  const auto groups = thread_groups(ranks), groups_by_hand = thread_groups(ranks);
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto net = make_net(), by_hand = make_net();
    const auto engine = mirrored(setting(groups[rank], net));
    DataParallel replica(groups_by_hand[rank], by_hand, GetParam().optimizer, GetParam().options);
    for (int step = 0; step < 3; ++step) {
      const Data whole = data(step), mine = whole.share(group.rank(), ranks);
      const StepOutcome outcome = take_step(*engine, whole, step + 1, passes);
      for (int part = 0; part < passes; ++part) {
        const Data piece = mine.share(part, passes);
        const at::Tensor loss = tests::cross_entropy(by_hand->forward(piece.x), piece.y);
        if (part + 1 == passes)
          replica.last_backward(loss, piece.size(), whole.size());
        else
          replica.backward(loss, piece.size(), whole.size());
      }
      const StepOutcome expected = replica.step();
      EXPECT_TRUE(outcome.updated);
      EXPECT_EQ(outcome.loss, expected.loss);
      EXPECT_EQ(outcome.samples, 17);
      EXPECT_EQ(outcome.operations, expected.operations);
      EXPECT_EQ(outcome.bytes_sent, expected.bytes_sent);
    }
    EXPECT_TRUE(tests::same_bits(state_of(*net).parameters, state_of(*by_hand).parameters));
    EXPECT_TRUE(
        tests::same_bits(updated_tensors(engine->state().tensors), replica.updated_parameters()));
    EXPECT_GT(tests::difference(*net, *make_net()), 0) << "the steps change something";
  });
}

TEST_P(EngineByForm, HasAMasterForEachParameterOf16BitsOnly) {
  const bool is_half = GetParam().type == at::kBFloat16;
  const auto groups = thread_groups(GetParam().ranks);
  on_ranks(groups, [&](Group& group) {
    const auto engine = mirrored(setting(groups[static_cast<size_t>(group.rank())], make_net()));
    const StateView view = engine->state().tensors;
    const auto parameters = names_in(view, StateKind::parameter);
    EXPECT_EQ(names_in(view, StateKind::master),
              is_half ? parameters : std::vector<std::string>());
    for (const auto& [name, tensor] : updated_tensors(view))
      EXPECT_EQ(tensor.scalar_type(), is_half ? at::kFloat : at::kDouble) << name;
  });
}

// Engines whose ranks have a copy each. (Tests of the Trainer load shared copies.)
class EngineOfCopies : public EngineByForm {};
INSTANTIATE_TEST_SUITE_P(Forms, EngineOfCopies, ::testing::ValuesIn(forms_of_copies()),
                         [](const auto& each) { return each.param.name; });

TEST_P(EngineOfCopies, ContinuesFromTheStateOfAnotherAsIfNothingHadHappened) {
  const int ranks = GetParam().ranks, passes = GetParam().passes;
  const auto groups = thread_groups(ranks), next_groups = thread_groups(ranks);
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto net = make_net(), next_net = make_net();
    const auto engine = mirrored(setting(groups[rank], net));
    for (int step = 0; step < 2; ++step) take_step(*engine, data(step), step + 1, passes);
    const EngineState saved = tests::copy_of(engine->state());
    const auto next = mirrored(setting(next_groups[rank], next_net));
    load(*next, saved, group.rank());
    for (int step = 2; step < 4; ++step) {
      const double loss = take_step(*engine, data(step), step + 1, passes).loss;
      EXPECT_EQ(take_step(*next, data(step), step + 1, passes).loss, loss);
    }
    EXPECT_TRUE(tests::same_bits(state_of(*next_net).parameters, state_of(*net).parameters));
  });
}

TEST(MirroredEngine, TellsPhasesInOrderAndAsksForWishesAtTheEnd) {
  const auto groups = thread_groups(2);
  on_ranks(groups, [&](Group& group) {
    EngineSetting setting =
        setting_of(groups[static_cast<size_t>(group.rank())], std::make_shared<Mlp>());
    std::vector<std::string> calls;
    setting.enter = [&](Phase phase) { calls.emplace_back(to_string(phase)); };
    setting.wishes = [&] {
      calls.emplace_back("wishes");
      return Wishes{.stop = group.rank() == 1};
    };
    const auto engine = mirrored(setting);
    EXPECT_TRUE(take_step(*engine, data_of(12), 1, 2).stop);
    EXPECT_THAT(calls,
                ElementsAre("forward", "backward", "forward", "backward", "exchange", "wishes"));
  });
}

}  // namespace
}  // namespace trireme::engine_test
