// Optimizers that are chosen by options, and their state, saved and loaded.
#include "models.h"

#include <torch/optim.h>
#include <torch/serialize/archive.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"

namespace trireme::optimizer_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::Mlp;
using OptimizerPtr = std::shared_ptr<torch::optim::Optimizer>;

void train(Mlp& net, torch::optim::Optimizer& optimizer, int first, int last) {
  for (int step = first; step < last; ++step) {
    const auto closure = [&] {
      optimizer.zero_grad();
      const at::Tensor loss = loss_on(net, tests::data_of(16, step));
      loss.backward();
      return loss;
    };
    if (dynamic_cast<torch::optim::LBFGS*>(&optimizer))
      optimizer.step(closure);
    else {
      closure();
      optimizer.step();
    }
  }
}

// An optimizer whose state Trireme does not know: it is kept as the bytes of its archive.
class OwnOptimizer : public torch::optim::Optimizer {
 public:
  explicit OwnOptimizer(std::vector<at::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<torch::optim::SGDOptions>(0.1)),
        sum_(at::zeros({1}, at::kDouble)) {}
  at::Tensor step(LossClosure = nullptr) override {
    const at::NoGradGuard no_grad;
    for (auto& parameter : param_groups()[0].params()) {
      sum_.add_(parameter.grad().sum());
      parameter.add_(parameter.grad() * sum_, -0.1);
    }
    return {};
  }
  void save(torch::serialize::OutputArchive& archive) const override {
    archive.write("sum", sum_, true);
  }
  void load(torch::serialize::InputArchive& archive) override { archive.read("sum", sum_, true); }

 private:
  at::Tensor sum_;
};

struct Kind {
  std::string name;
  OptimizerFactory ours;
  std::function<OptimizerPtr(std::vector<at::Tensor>)> torchs;
};

std::vector<Kind> known_kinds() {
  namespace optim = torch::optim;
  using Tensors = std::vector<at::Tensor>;
  return {
      {"SGD", SGD{.lr = 0.1},
       [](Tensors p) { return std::make_shared<optim::SGD>(p, optim::SGDOptions(0.1)); }},
      {"SGD_momentum", SGD{.lr = 0.1, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01},
       [](Tensors p) {
         return std::make_shared<optim::SGD>(
             p, optim::SGDOptions(0.1).momentum(0.9).dampening(0.1).weight_decay(0.01));
       }},
      {"SGD_nesterov", SGD{.lr = 0.1, .momentum = 0.9, .nesterov = true},
       [](Tensors p) {
         return std::make_shared<optim::SGD>(p,
                                             optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
       }},
      {"Adam", Adam{}, [](Tensors p) { return std::make_shared<optim::Adam>(p); }},
      {"Adam_amsgrad",
       Adam{.lr = 0.01,
            .beta1 = 0.8,
            .beta2 = 0.95,
            .eps = 1e-6,
            .weight_decay = 0.1,
            .amsgrad = true},
       [](Tensors p) {
         return std::make_shared<optim::Adam>(p, optim::AdamOptions(0.01)
                                                     .betas({0.8, 0.95})
                                                     .eps(1e-6)
                                                     .weight_decay(0.1)
                                                     .amsgrad(true));
       }},
      {"AdamW", AdamW{}, [](Tensors p) { return std::make_shared<optim::AdamW>(p); }},
      {"AdamW_amsgrad", AdamW{.lr = 0.01, .weight_decay = 0.3, .amsgrad = true},
       [](Tensors p) {
         return std::make_shared<optim::AdamW>(
             p, optim::AdamWOptions(0.01).weight_decay(0.3).amsgrad(true));
       }},
      {"RMSprop", RMSprop{}, [](Tensors p) { return std::make_shared<optim::RMSprop>(p); }},
      {"RMSprop_centered",
       RMSprop{.lr = 0.02,
               .alpha = 0.9,
               .eps = 1e-6,
               .weight_decay = 0.01,
               .momentum = 0.5,
               .centered = true},
       [](Tensors p) {
         return std::make_shared<optim::RMSprop>(p, optim::RMSpropOptions(0.02)
                                                        .alpha(0.9)
                                                        .eps(1e-6)
                                                        .weight_decay(0.01)
                                                        .momentum(0.5)
                                                        .centered(true));
       }},
      {"Adagrad", Adagrad{}, [](Tensors p) { return std::make_shared<optim::Adagrad>(p); }},
      {"Adagrad_decay", Adagrad{.lr = 0.05, .lr_decay = 0.1, .weight_decay = 0.01, .eps = 1e-6},
       [](Tensors p) {
         return std::make_shared<optim::Adagrad>(
             p, optim::AdagradOptions(0.05).lr_decay(0.1).weight_decay(0.01).eps(1e-6));
       }},
  };
}
std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds = known_kinds();
  const auto opaque = [](auto make) {
    return [make](const std::vector<NamedTensor>& parameters) -> OptimizerPtr {
      return make(tests::trainable_of(parameters));
    };
  };
  kinds.push_back({"opaque_LBFGS",
                   opaque([](auto p) {
                     return std::make_shared<torch::optim::LBFGS>(
                         p, torch::optim::LBFGSOptions(0.1).max_iter(3));
                   }),
                   {}});
  kinds.push_back(
      {"opaque_own", opaque([](auto p) { return std::make_shared<OwnOptimizer>(p); }), {}});
  return kinds;
}
const auto kName = [](const auto& each) { return each.param.name; };

class OptimizerByValue : public ::testing::TestWithParam<Kind> {};
TEST_P(OptimizerByValue, IsTorchsOwnBitForBit) {
  Mlp ours, torchs;
  const OptimizerPtr mine = GetParam().ours(state_of(ours).parameters);
  const OptimizerPtr theirs = GetParam().torchs(torchs.parameters());
  train(ours, *mine, 0, 5);
  train(torchs, *theirs, 0, 5);
  EXPECT_TRUE(tests::same_bits(state_of(ours).parameters, state_of(torchs).parameters));
}
TEST_P(OptimizerByValue, LeavesFrozenParametersOut) {
  Mlp net;
  for (auto& parameter : net.first->parameters()) parameter.requires_grad_(false);
  const OptimizerPtr optimizer = GetParam().ours(state_of(net).parameters);
  EXPECT_EQ(optimizer->param_groups().at(0).params().size(), 2u);
}
TEST_P(OptimizerByValue, RefusesAModelWithNothingToTrain) {
  Mlp net;
  for (auto& parameter : net.parameters()) parameter.requires_grad_(false);
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [&] { GetParam().ours(state_of(net).parameters); }),
      HasSubstr("no trainable parameter"));
}
INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerByValue, ::testing::ValuesIn(known_kinds()), kName);

class SavedOptimizer : public ::testing::TestWithParam<Kind> {};
TEST_P(SavedOptimizer, ContinuesBitForBitInANewProgramme) {
  Mlp whole;
  const OptimizerPtr undisturbed = GetParam().ours(state_of(whole).parameters);
  train(whole, *undisturbed, 0, 3);
  // This is a copy, as a checkpoint would have it, because training continues in place.
  OptimizerState saved = state_of(*undisturbed, state_of(whole).parameters);
  for (auto& [name, tensor] : saved.tensors) tensor = tensor.clone();
  Mlp resumed;
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < whole.parameters().size(); ++i)
      resumed.parameters()[i].copy_(whole.parameters()[i]);
  }
  const OptimizerPtr fresh = GetParam().ours(state_of(resumed).parameters);
  load_state(*fresh, state_of(resumed).parameters, saved);
  train(whole, *undisturbed, 3, 6);
  train(resumed, *fresh, 3, 6);
  EXPECT_TRUE(tests::same_bits(state_of(whole).parameters, state_of(resumed).parameters));
  EXPECT_EQ(saved.kind, GetParam().name.substr(0, GetParam().name.find('_')));
}
TEST_P(SavedOptimizer, IsEmptyOrLoadableBeforeTheFirstStep) {
  Mlp net;
  const OptimizerPtr optimizer = GetParam().ours(state_of(net).parameters);
  const OptimizerState saved = state_of(*optimizer, state_of(net).parameters);
  Mlp other;
  const OptimizerPtr fresh = GetParam().ours(state_of(other).parameters);
  load_state(*fresh, state_of(other).parameters, saved);
  train(net, *optimizer, 0, 2);
  train(other, *fresh, 0, 2);
  EXPECT_TRUE(tests::same_bits(state_of(net).parameters, state_of(other).parameters));
}
TEST_P(SavedOptimizer, LeavesNothingOfALaterState) {
  Mlp net, undisturbed;
  const auto parameters = state_of(net).parameters;
  const OptimizerPtr optimizer = GetParam().ours(parameters);
  // A copy, as a checkpoint would have it: Adagrad has state from the start, and steps change it.
  OptimizerState before = state_of(*optimizer, parameters);
  for (auto& [name, tensor] : before.tensors) tensor = tensor.clone();
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : parameters) values.push_back(tensor.detach().clone());
  train(net, *optimizer, 0, 3);
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < values.size(); ++i) parameters[i].tensor.copy_(values[i]);
  }
  load_state(*optimizer, parameters, before);
  if (before.kind != "opaque") {
    Mlp other;
    EXPECT_EQ(optimizer->state().size(),
              GetParam().ours(state_of(other).parameters)->state().size());
  }
  train(net, *optimizer, 0, 3);
  train(undisturbed, *GetParam().ours(state_of(undisturbed).parameters), 0, 3);
  EXPECT_TRUE(tests::same_bits(parameters, state_of(undisturbed).parameters));
}
TEST_P(SavedOptimizer, OfAnotherKindIsRefusedWithBothNames) {
  Mlp net;
  const auto parameters = state_of(net).parameters;
  OptimizerState other = state_of(*GetParam().ours(parameters), parameters);
  const std::string kind = other.kind;
  other.kind = "Lion";
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { load_state(*GetParam().ours(parameters), parameters, other); }),
              AllOf(HasSubstr("Lion"), HasSubstr(kind)));
}
INSTANTIATE_TEST_SUITE_P(Kinds, SavedOptimizer, ::testing::ValuesIn(all_kinds()), kName);

TEST(OptimizerStateNames, AreThoseOfPartsAndParameters) {
  Mlp net;
  const auto parameters = state_of(net).parameters;
  OptimizerFactory factory = Adam{.amsgrad = true};
  const OptimizerPtr optimizer = factory(parameters);
  train(net, *optimizer, 0, 3);
  const OptimizerState saved = state_of(*optimizer, parameters);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : saved.tensors) names.push_back(name);
  EXPECT_THAT(names, ::testing::IsSupersetOf({"exp_avg/first.weight", "exp_avg_sq/second.bias",
                                              "max_exp_avg_sq/first.bias"}));
  EXPECT_EQ(saved.counters["step"]["first.weight"], 3);
}

TEST(OptimizerStateNames, AStateOfAnotherModelIsRefusedWithTheParametersName) {
  Mlp net, wider(6, 12);
  OptimizerFactory factory = Adam{};
  const OptimizerPtr optimizer = factory(state_of(net).parameters),
                     other = factory(state_of(wider).parameters);
  train(net, *optimizer, 0, 1);
  const OptimizerState saved = state_of(*optimizer, state_of(net).parameters);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { load_state(*other, state_of(wider).parameters, saved); }),
              HasSubstr("first.weight"));
}

TEST(OpaqueState, ThatIsNotAnArchiveIsRefused) {
  Mlp net;
  const auto parameters = state_of(net).parameters;
  OwnOptimizer optimizer(tests::trainable_of(parameters));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { load_state(optimizer, parameters, {.kind = "opaque"}); }),
              HasSubstr("opaque"));
}

}  // namespace
}  // namespace trireme::optimizer_test
