// An optimizer's state, shown as an engine shows it, and loaded as a new engine loads it.
#include "models.h"

#include <torch/optim.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/comm/dtype.h>
#include <trireme/parallel/optimizer_view.h>

#include "../base/expect_error.h"

namespace trireme::optimizer_view_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::Mlp;

// A model, its optimizer and the view.
struct Trainee {
  explicit Trainee(const OptimizerFactory& factory)
      : parameters(state_of(net).parameters),
        optimizer(factory(parameters)),
        view(*optimizer, parameters) {}

  void train(int first, int last) {
    for (int step = first; step < last; ++step) {
      const auto closure = [&] {
        optimizer->zero_grad();
        const at::Tensor loss = loss_on(net, tests::data_of(16, step));
        loss.backward();
        return loss;
      };
      if (dynamic_cast<torch::optim::LBFGS*>(optimizer.get())) {
        optimizer->step(closure);
      } else {
        closure();
        optimizer->step();
      }
    }
  }
  EngineState shown() const {
    EngineState state;
    view.show(state);
    return state;
  }
  // The state as a checkpoint has it: training goes on in place.
  EngineState saved() const {
    EngineState state = shown();
    for (StateEntry& entry : state.tensors) entry.tensor = entry.tensor.clone();
    return state;
  }
  void take_parameters(const Trainee& other) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters[i].tensor.copy_(other.parameters[i].tensor);
  }

  Mlp net;
  std::vector<NamedTensor> parameters;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  OptimizerView view;
};

std::vector<std::string> names_in(const StateView& view) {
  std::vector<std::string> names;
  for (const StateEntry& entry : view) names.push_back(entry.slice.tensor);
  return names;
}

std::vector<plan::TensorSpec> specs_in_file(const StateView& view) {
  std::vector<plan::TensorSpec> specs;
  for (const StateEntry& entry : view)
    specs.push_back(
        {name_in_file(entry, 0), entry.tensor.sizes().vec(), to_plan(entry.tensor.scalar_type())});
  return specs;
}

// Loads the state as Saver does. `others` are saved tensors that do not belong to the optimizer.
void load(Trainee& into, const EngineState& saved, std::vector<plan::TensorSpec> others = {}) {
  for (const plan::TensorSpec& spec : specs_in_file(saved.tensors)) others.push_back(spec);
  into.view.begin_load(saved.counters, others);
  const EngineState incoming = into.shown();
  EXPECT_EQ(names_in(incoming.tensors), names_in(saved.tensors));
  for (const StateEntry& to : incoming.tensors)
    for (const StateEntry& from : saved.tensors)
      if (from.slice.tensor == to.slice.tensor) to.tensor.copy_(from.tensor);
  into.view.end_load();
}

struct Kind {
  std::string name;
  OptimizerFactory factory;
};
std::vector<Kind> kinds() {
  const OptimizerFactory lbfgs = [](const std::vector<NamedTensor>& parameters) {
    return std::make_shared<torch::optim::LBFGS>(tests::trainable_of(parameters),
                                                 torch::optim::LBFGSOptions(0.1).max_iter(3));
  };
  return {{"SGD", SGD{.lr = 0.1, .momentum = 0.9}},
          {"Adam", Adam{.lr = 0.01}},
          {"AdamW_amsgrad", AdamW{.lr = 0.01, .amsgrad = true}},
          {"RMSprop", RMSprop{.momentum = 0.5, .centered = true}},
          {"Adagrad", Adagrad{.lr = 0.05, .lr_decay = 0.1}},
          {"Lars", Lars{.lr = 0.5}},
          {"Lamb", Lamb{.lr = 0.01}},
          {"opaque_LBFGS", lbfgs}};
}
std::string kind_in(const std::string& name) { return name.substr(0, name.find('_')); }

class ViewedOptimizer : public ::testing::TestWithParam<Kind> {
 protected:
  const OptimizerFactory& factory() const { return GetParam().factory; }
};
INSTANTIATE_TEST_SUITE_P(Kinds, ViewedOptimizer, ::testing::ValuesIn(kinds()),
                         [](const auto& each) { return each.param.name; });

TEST_P(ViewedOptimizer, ShowsItsTensorsAndItsKind) {
  Trainee trainee(factory());
  trainee.train(0, 2);
  const EngineState state = trainee.shown();
  const bool is_opaque = kind_in(GetParam().name) == "opaque";
  EXPECT_FALSE(state.tensors.empty());
  for (const StateEntry& entry : state.tensors) {
    EXPECT_EQ(entry.kind, is_opaque ? StateKind::archive : StateKind::optimizer);
    EXPECT_TRUE(entry.slice.is_whole());
    EXPECT_EQ(entry.slice.shape, entry.tensor.sizes().vec());
  }
  EXPECT_EQ(state.counters.at("optimizer").at("kind").get<std::string>(),
            kind_in(GetParam().name));
}

TEST_P(ViewedOptimizer, ContinuesBitForBitWhereItIsLoaded) {
  Trainee original(factory()), resumed(factory());
  original.train(0, 3);
  resumed.take_parameters(original);
  load(resumed, original.saved());
  EXPECT_EQ(resumed.shown().counters, original.shown().counters);
  original.train(3, 5);
  resumed.train(3, 5);
  EXPECT_TRUE(tests::same_bits(resumed.parameters, original.parameters));
}

// Without the state the next steps are others, so the test above can fail.
TEST_P(ViewedOptimizer, ContinuesOtherwiseWithoutItsState) {
  Trainee original(factory()), fresh(factory());
  original.train(0, 3);
  fresh.take_parameters(original);
  original.train(3, 5);
  fresh.train(3, 5);
  EXPECT_FALSE(tests::same_bits(fresh.parameters, original.parameters));
}

TEST_P(ViewedOptimizer, IsLoadedAsFreshBeforeItsFirstStep) {
  Trainee original(factory()), other(factory()), undisturbed(factory());
  const EngineState before = original.saved();
  other.train(0, 2);  // It must lose this state.
  load(other, before);
  other.take_parameters(original);
  other.train(0, 2);
  undisturbed.train(0, 2);
  EXPECT_TRUE(tests::same_bits(other.parameters, undisturbed.parameters));
}

TEST_P(ViewedOptimizer, IgnoresSavedTensorsOfTheEngine) {
  Trainee original(factory()), resumed(factory());
  original.train(0, 3);
  resumed.take_parameters(original);
  load(resumed, original.saved(),
       {{"engine/master/first.weight", {10, 6}},
        {"engine/ema/first.weight", {10, 6}},
        {"engine/center/first.weight", {10, 6}},
        {"rank0/error/first.weight", {10, 6}},
        {"rank1/error/first.weight", {10, 6}}});
  EXPECT_EQ(names_in(resumed.shown().tensors), names_in(original.shown().tensors));
  original.train(3, 5);
  resumed.train(3, 5);
  EXPECT_TRUE(tests::same_bits(resumed.parameters, original.parameters));
}

TEST_P(ViewedOptimizer, OfAnotherKindIsRefusedByBothNames) {
  Trainee original(factory()), other(factory());
  original.train(0, 1);
  EngineState saved = original.saved();
  saved.counters["optimizer"]["kind"] = "Lion";
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument,
                 [&] { other.view.begin_load(saved.counters, specs_in_file(saved.tensors)); }),
      AllOf(HasSubstr("Lion"), HasSubstr(kind_in(GetParam().name))));
}

TEST(OptimizerView, RefusesAnArchiveForNamedStateAndTheOtherWayRound) {
  for (const auto& [from, to] : {std::pair{"SGD", "opaque_LBFGS"}, {"opaque_LBFGS", "SGD"}}) {
    std::map<std::string, OptimizerFactory> by_name;
    for (const Kind& kind : kinds()) by_name.emplace(kind.name, kind.factory);
    Trainee original(by_name.at(from)), other(by_name.at(to));
    original.train(0, 1);
    const EngineState saved = original.saved();
    EXPECT_THAT(
        message_of(ErrorCode::invalid_argument,
                   [&] { other.view.begin_load(saved.counters, specs_in_file(saved.tensors)); }),
        AllOf(HasSubstr("SGD"), HasSubstr("opaque")));
  }
}

// Two groups with learning rates of their own: the first layer's, and the second layer's.
OptimizerFactory two_groups() {
  return [](const std::vector<NamedTensor>& parameters) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (size_t layer = 0; layer < 2; ++layer)
      groups.emplace_back(
          std::vector<at::Tensor>{parameters[2 * layer].tensor, parameters[2 * layer + 1].tensor},
          std::make_unique<torch::optim::SGDOptions>(layer == 0 ? 0.1 : 0.01));
    return std::make_shared<torch::optim::SGD>(std::move(groups), torch::optim::SGDOptions(0.5));
  };
}

TEST(OptimizerView, TellsTheRateOfEachGroup) {
  EXPECT_THAT(Trainee(two_groups()).view.rates(), ElementsAre(0.1, 0.01));
}

TEST(OptimizerView, SetsTheRateOfEachGroup) {
  Trainee trainee(two_groups());
  trainee.view.set_rates(std::vector<double>{0, 0.5});
  EXPECT_THAT(trainee.view.rates(), ElementsAre(0, 0.5));
  std::vector<at::Tensor> before;
  for (const auto& [name, tensor] : trainee.parameters) before.push_back(tensor.detach().clone());
  trainee.train(0, 1);
  for (size_t i = 0; i < before.size(); ++i) {
    const at::Tensor now = trainee.parameters[i].tensor.detach();
    EXPECT_EQ(now.equal(before[i]), i < 2) << "only the second group moves";
  }
}

}  // namespace
}  // namespace trireme::optimizer_view_test
