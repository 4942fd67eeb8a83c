// The memory, the saved tensors and the errors of a backward in two halves.
#include "split_cases.h"

#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <trireme/base/error.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

namespace trireme::split_backward_test {
namespace {

TEST(SplitBackward, KeepsSeveralMicroBatchesApart) {
  const Tensors weights = {parameter({8, 8}, 1), parameter({8}, 2), parameter({8}, 3)};
  const Part part = [&](const Tensors& inputs) {
    return Tensors{at::layer_norm(at::linear(inputs[0], weights[0], weights[1]), {8}, weights[2])};
  };
  Tensors expected_inputs, inputs;
  const auto of = [&](uint64_t seed) { return Case{part, {numbers({5, 8}, seed)}, weights}; };
  std::vector<Pass> passes;
  for (uint64_t seed : {50, 51, 52}) {
    passes.push_back(forward(of(seed)));
    torch::autograd::backward(passes.back().outputs, passes.back().gradients);
    expected_inputs.push_back(take_gradients(passes.back().inputs)[0]);
  }
  const Tensors expected = take_gradients(weights);
  std::vector<SplitBackward> splits;
  for (uint64_t seed : {50, 51, 52}) {
    passes.push_back(forward(of(seed)));
    splits.emplace_back(passes.back().outputs, passes.back().gradients, passes.back().inputs);
    inputs.push_back(splits.back().input_gradients()[0]);
  }
  for (SplitBackward& split : splits) split.weight_gradients();
  expect_equal(inputs, expected_inputs, 0, "input");
  // Matrix products add to the sums themselves, which rounds otherwise.
  expect_equal(take_gradients(weights), expected, 1e-6, "parameter");
}

TEST(SplitBackward, FreesWhatTheSecondHalfDoesNotNeed) {
  const Tensors weights = {parameter({8, 8}, 1), parameter({8, 8}, 2)};
  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;
  std::vector<Weak> memory;
  const auto watch = [&](const at::Tensor& tensor) {
    memory.push_back(tensor.storage().getWeakStorageImpl());
    return tensor;
  };
  Pass pass = forward({[&](const Tensors& inputs) {
                         const at::Tensor x = watch(at::linear(inputs[0], weights[0]));
                         return Tensors{at::linear(watch(at::gelu(x)), weights[1])};
                       },
                       {numbers({5, 8}, 50)},
                       weights});
  SplitBackward split(pass.outputs, pass.gradients, pass.inputs);
  memory.push_back(pass.inputs[0].storage().getWeakStorageImpl());
  pass.inputs.clear();
  const auto alive = [&] {
    std::vector<bool> result;
    for (const Weak& one : memory) result.push_back(!one.expired());
    return result;
  };
  EXPECT_THAT(alive(), ::testing::ElementsAre(true, true, true));
  split.input_gradients();  // Only the inputs of the linear layers are needed now.
  EXPECT_THAT(alive(), ::testing::ElementsAre(false, true, true));
  split.weight_gradients();
  EXPECT_THAT(alive(), ::testing::ElementsAre(false, false, false));
}

// Keeps no tensor, and computes it again each time that backward asks for it.
class Recompute : public torch::autograd::SavedVariableHooks {
 public:
  Recompute(std::function<at::Tensor()> compute, int& count)
      : compute_(std::move(compute)), count_(count) {}
  void call_pack_hook(const at::Tensor&) override {}
  at::Tensor call_unpack_hook() override {
    ++count_;
    const at::NoGradGuard no_grad;
    return compute_();
  }

 private:
  std::function<at::Tensor()> compute_;
  int& count_;
};

TEST(SplitBackward, UnpacksTheSavedTensorsOfADeferredOperationInBothHalves) {
  const Tensors weights = {parameter({8, 8}, 1), parameter({8}, 2)};
  int unpacked = 0;
  const Part part = [&](const Tensors& inputs) {
    const at::Tensor x = inputs[0], y = at::linear(at::tanh(x), weights[0], weights[1]);
    auto* node = dynamic_cast<torch::autograd::generated::AddmmBackward0*>(y.grad_fn().get());
    node->mat1_.register_hooks(std::make_unique<Recompute>([x] { return at::tanh(x); }, unpacked));
    return Tensors{y};
  };
  const Case the_case{part, {numbers({5, 8}, 50)}, weights};
  one_backward(the_case);
  EXPECT_EQ(unpacked, 1);
  expect_split(the_case, {.deferred = 1});
  EXPECT_EQ(unpacked, 4);
}

// Computes a linear layer without a graph, and again with one in backward, where it also gives the
// weight its gradient.
struct Checkpointed : torch::autograd::Function<Checkpointed> {
  using Context = torch::autograd::AutogradContext;
  using List = torch::autograd::variable_list;
  static at::Tensor forward(Context* context, const at::Tensor& x,
                            const std::function<at::Tensor()>& weight) {
    context->save_for_backward({x});
    context->saved_data["weight"] = weight();
    return at::linear(x, weight()).tanh();
  }
  static List backward(Context* context, List gradients) {
    const at::AutoGradMode with_graph(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    const at::Tensor y = at::linear(x, context->saved_data["weight"].toTensor()).tanh();
    torch::autograd::backward({y}, gradients);
    return {x.grad(), at::Tensor()};
  }
};

TEST(SplitBackward, RunsABackwardInsideAnOperationOnceInTheFirstHalf) {
  const Tensors weights = {parameter({8, 8}, 1), parameter({8, 8}, 2)};
  const Part part = [&](const Tensors& inputs) {
    return Tensors{
        Checkpointed::apply(at::linear(inputs[0], weights[0]), [&] { return weights[1]; })};
  };
  expect_split({part, {numbers({5, 8}, 50)}, weights}, {.deferred = 1, .early = 1});
}

// Gives its input no gradient.
struct Stop : torch::autograd::Function<Stop> {
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static List backward(torch::autograd::AutogradContext*, List) { return {at::Tensor()}; }
};

TEST(SplitBackward, LeavesGradientsUndefinedBehindAnOperationThatGivesNone) {
  const Tensors weights = {parameter({8, 8}, 1), parameter({8, 8}, 2)};
  const Part part = [&](const Tensors& inputs) {
    return Tensors{at::linear(Stop::apply(at::linear(inputs[0], weights[0])), weights[1])};
  };
  expect_split({part, {numbers({5, 8}, 50)}, weights}, {.deferred = 2});
}

TEST(SplitBackward, NamesWrongInput) {
  const at::Tensor weight = parameter({4, 4}, 1), x = parameter({2, 4}, 2);
  const at::Tensor y = at::linear(x, weight), one = at::ones({2, 4});
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.code() == ErrorCode::invalid_argument ? error.what() : "";
    }
    return "";
  };
  EXPECT_THAT(message([&] { SplitBackward({y}, {one, one}, {x}); }),
              HasSubstr("there are 1 outputs and 2 gradients"));
  EXPECT_THAT(message([&] { SplitBackward({y}, {at::ones({4, 2})}, {x}); }),
              HasSubstr("output 0 has shape [2, 4], its gradient has [4, 2]"));
  EXPECT_THAT(message([&] { SplitBackward({y}, {one}, {y}); }),
              HasSubstr("input 0 was itself computed"));
  EXPECT_THAT(message([&] { SplitBackward({y}, {one}, {x, x}); }),
              HasSubstr("inputs 0 and 1 are the same tensor"));
  EXPECT_THAT(message([&] { SplitBackward({y}, {one}, {at::Tensor()}); }),
              HasSubstr("input 0 is undefined"));
  SplitBackward split({y}, {one}, {x});
  EXPECT_THAT(message([&] { split.weight_gradients(); }), HasSubstr("need those of the inputs"));
  split.input_gradients();
  EXPECT_THAT(message([&] { split.input_gradients(); }), HasSubstr("were computed before"));
  split.weight_gradients();
  EXPECT_THAT(message([&] { split.weight_gradients(); }), HasSubstr("nothing left"));
}

TEST(SplitBackward, EndsWithAnErrorOfTheFirstHalf) {
  const at::Tensor weight = parameter({4, 4}, 1);
  at::Tensor x = parameter({2, 4}, 2);
  x.mutable_grad() = at::ones({2, 4});
  const at::Tensor hidden = at::tanh(at::linear(x, weight));
  hidden.register_hook(
      [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("broken"); });
  SplitBackward split({at::linear(hidden, weight)}, {at::ones({2, 4})}, {x});
  EXPECT_THROW(split.input_gradients(), std::runtime_error);
  EXPECT_TRUE(at::equal(x.grad(), at::ones({2, 4})));
  EXPECT_THROW(split.weight_gradients(), Error);
  EXPECT_FALSE(weight.grad().defined());
}

}  // namespace
}  // namespace trireme::split_backward_test
