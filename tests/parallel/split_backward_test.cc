// Backward in two halves gives the gradients of one ordinary backward, and each of them once.
#include "split_cases.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <random>
// This header must come after those of torch.
#include <gmock/gmock.h>

namespace trireme::split_backward_test {
namespace {

TEST(SplitBackward, DefersTheWeightsOfLinearLayers) {
  Tensors weights;
  for (uint64_t i = 0; i < 4; ++i) {
    weights.push_back(parameter({32, 32}, 2 * i));
    weights.push_back(parameter({32}, 2 * i + 1));
  }
  const Part part = [&](const Tensors& inputs) {
    at::Tensor x = inputs[0];
    for (size_t i = 0; i < 8; i += 2) x = at::relu(at::linear(x, weights[i], weights[i + 1]));
    return Tensors{x};
  };
  expect_split({part, {numbers({8, 32}, 50)}, weights}, {.deferred = 4});
  Pass pass = forward({part, {numbers({8, 32}, 50)}, weights});
  SplitBackward split(pass.outputs, pass.gradients, pass.inputs);
  split.input_gradients();
  EXPECT_EQ(split.kept_bytes(), 4 * 8 * 32 * 4);
}

TEST(SplitBackward, ComputesNormalisationsAtOnceInABlockWithAttention) {
  const Tensors weights = {parameter({16}, 1),  parameter({16}, 2),     parameter({48, 16}, 3),
                           parameter({48}, 4),  parameter({16, 16}, 5), parameter({16}, 6),
                           parameter({16}, 7),  parameter({16}, 8),     parameter({64, 16}, 9),
                           parameter({64}, 10), parameter({16, 64}, 11)};
  const Part part = [&](const Tensors& inputs) {
    const at::Tensor x = inputs[0];
    const at::Tensor normed = at::layer_norm(x, {16}, weights[0], weights[1]);
    const auto qkv = at::linear(normed, weights[2], weights[3])
                         .view({3, 10, 3, 2, 8})
                         .permute({2, 0, 3, 1, 4})
                         .unbind(0);
    const at::Tensor heads =
        at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], std::nullopt, 0.0, true)
            .transpose(1, 2)
            .reshape({3, 10, 16});
    const at::Tensor y =
        x + at::dropout(at::linear(heads, weights[4], weights[5]), 0.3, /*train=*/true);
    const at::Tensor hidden = at::gelu(
        at::linear(at::layer_norm(y, {16}, weights[6], weights[7]), weights[8], weights[9]));
    return Tensors{y + at::linear(hidden, weights[10])};
  };
  expect_split({part, {numbers({3, 10, 16}, 50)}, weights},
               {.deferred = 4, .at_once = 2, .early = 4});
}

TEST(SplitBackward, SplitsConvolutionsWithBatchNormAndOperationsInPlace) {
  const Tensors weights = {parameter({6, 4, 3, 3}, 1), parameter({6}, 2), parameter({6}, 3),
                           parameter({6}, 4), parameter({4, 6, 1, 1}, 5)};
  const Part part = [&](const Tensors& inputs) {
    at::Tensor mean = at::zeros({6}), variance = at::ones({6});
    at::Tensor x = at::conv2d(inputs[0], weights[0], weights[1], 1, 1);
    x = at::batch_norm(x, weights[2], weights[3], mean, variance, true, 0.1, 1e-5, false);
    x.relu_();
    return Tensors{(at::conv2d(x, weights[4]) + inputs[0]).relu_()};
  };
  expect_split({part, {numbers({2, 4, 9, 9}, 50)}, weights},
               {.deferred = 2, .at_once = 1, .early = 2});
}

TEST(SplitBackward, CountsAWeightOnceThatSeveralOperationsUse) {
  const Tensors weights = {parameter({8, 8}, 1), parameter({8}, 2)};
  const Part part = [&](const Tensors& inputs) {
    at::Tensor x = inputs[0];
    for (int i = 0; i < 3; ++i) x = at::tanh(at::linear(x, weights[0], weights[1]));
    return Tensors{x * weights[1]};
  };
  expect_split({part, {numbers({5, 8}, 50)}, weights}, {.deferred = 4});
}

TEST(SplitBackward, WaitsWithAWeightThatIsMadeOfParameters) {
  const Tensors weights = {parameter({8, 8}, 1), parameter({8, 1}, 2), parameter({8}, 3)};
  int hooks = 0;
  const Part part = [&](const Tensors& inputs) {
    const at::Tensor weight = weights[0] / weights[0].norm(2, {1}, true) * weights[1];
    weight.register_hook([&](const at::Tensor& gradient) { return ++hooks, 2 * gradient; });
    return Tensors{at::linear(at::relu(at::linear(inputs[0], weight, weights[2])), weight)};
  };
  expect_split({part, {numbers({5, 8}, 50)}, weights}, {.deferred = 2});
  EXPECT_EQ(hooks, 2);  // One ordinary backward, and one in two halves.
}

TEST(SplitBackward, LeavesEverythingToTheSecondHalfWhereNoInputNeedsAGradient) {
  const Tensors weights = {parameter({11, 8}, 1), parameter({6, 8}, 2), parameter({8, 8}, 3),
                           parameter({8}, 4)};
  const Part part = [&](const Tensors& inputs) {
    const at::Tensor x = at::embedding(weights[0], inputs[0]) + weights[1];
    return Tensors{at::layer_norm(at::linear(x, weights[2]), {8}, weights[3])};
  };
  const at::Tensor tokens = at::arange(12, at::kLong).remainder(11).view({2, 6});
  expect_split({part, {tokens}, weights}, {});
}

TEST(SplitBackward, WaitsWithEmbeddingsThatAreAdded) {
  const Tensors weights = {parameter({9, 8}, 1), parameter({8}, 2)};
  const at::Tensor places = at::arange(6, at::kLong);
  const Part part = [&](const Tensors& inputs) {
    return Tensors{(inputs[0] + at::embedding(weights[0], places) - weights[1]).sigmoid()};
  };
  expect_split({part, {numbers({3, 6, 8}, 50)}, weights}, {.deferred = 2});
}

TEST(SplitBackward, TakesSeveralInputsAndOutputs) {
  const Tensors weights = {parameter({8, 8}, 1), parameter({8, 8}, 2), parameter({8, 8}, 3),
                           parameter({5, 8}, 4)};
  const Part part = [&](const Tensors& inputs) {
    const at::Tensor x = at::relu(at::linear(inputs[0], weights[0]));
    const at::Tensor skipped = at::linear(inputs[1], weights[1]);
    // The third input is not used, the fourth output is an input, and the fifth depends on none.
    return Tensors{at::linear(x + skipped, weights[2]),
                   x,
                   skipped,
                   inputs[1],
                   weights[3].tanh(),
                   inputs[0].detach()};
  };
  const Tensors inputs = {numbers({5, 8}, 50), numbers({5, 8}, 51), numbers({5, 8}, 52)};
  expect_split({part, inputs, weights}, {.deferred = 3});
  expect_split({part, inputs, weights, {true, false, false, false, false, false}},
               {.deferred = 3});
  expect_split({part, inputs, weights, {false, true, false, false, true, false}}, {.deferred = 1});
  expect_split({part, inputs, weights, {false, false, false, true, false, true}}, {});
  expect_split({part, inputs, weights, std::vector<bool>(6, false)}, {});
}

TEST(SplitBackward, HasNothingToDeferForFrozenParameters) {
  const Tensors weights = {numbers({8, 8}, 1), parameter({8}, 2), numbers({8, 8}, 3)};
  const Part part = [&](const Tensors& inputs) {
    return Tensors{
        at::linear(at::relu(at::linear(inputs[0], weights[0], weights[1])), weights[2])};
  };
  expect_split({part, {numbers({5, 8}, 50)}, weights}, {.deferred = 1});
}

TEST(SplitBackward, RunsAFunctionOfTheUsersOwnOnce) {
  const Tensors weights = {parameter({8, 8}, 1), parameter({8, 8}, 2), parameter({8}, 3)};
  const Part part = [&](const Tensors& inputs) {
    const at::Tensor x = at::linear(inputs[0], weights[0], weights[2]);
    // The second weight also belongs to a linear layer, which therefore cannot wait with it.
    return Tensors{at::linear(Scale::apply(x, weights[1]), weights[1], weights[2])};
  };
  scale_calls = 0;
  expect_split({part, {numbers({8, 8}, 50)}, weights}, {.deferred = 2, .at_once = 2, .early = 1},
               1e-6);
  EXPECT_EQ(scale_calls, 2);
}

struct Counting : torch::autograd::FunctionPostHook {
  explicit Counting(int& count) : count_(count) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    ++count_;
    return outputs;
  }
  int& count_;
};

TEST(SplitBackward, RunsHooksOnce) {
  const Tensors weights = {parameter({8, 8}, 1), parameter({8, 8}, 2)};
  int on_activation = 0, on_parameter = 0, accumulated = 0;
  weights[1].register_hook(
      [&](const at::Tensor& gradient) { return ++on_parameter, 3 * gradient; });
  const auto accumulator = torch::autograd::impl::grad_accumulator(weights[1]);
  accumulator->add_post_hook(std::make_unique<Counting>(accumulated));
  const Part part = [&](const Tensors& inputs) {
    const at::Tensor x = at::linear(inputs[0], weights[0]);
    x.register_hook([&](const at::Tensor& gradient) { return ++on_activation, 2 * gradient; });
    return Tensors{at::linear(x, weights[1])};
  };
  expect_split({part, {numbers({5, 8}, 50)}, weights}, {.deferred = 1, .at_once = 1, .early = 1});
  EXPECT_EQ(on_activation, 2);
  EXPECT_EQ(on_parameter, 2);
  EXPECT_EQ(accumulated, 2);
}

TEST(SplitBackward, FollowsWritesIntoViews) {
  const Tensors weights = {parameter({8, 8}, 1), parameter({4}, 2), parameter({5, 8}, 3)};
  const Part part = [&](const Tensors& inputs) {
    at::Tensor x = at::linear(inputs[0], weights[0]);
    x.narrow(1, 0, 4).mul_(weights[1]);
    x.narrow(1, 2, 4).tanh_();
    at::Tensor buffer = at::zeros({5, 16});
    buffer.narrow(1, 0, 8).copy_(x);
    buffer.narrow(1, 8, 8).copy_(weights[2]);
    return Tensors{buffer};
  };
  expect_split({part, {numbers({5, 8}, 50)}, weights}, {.deferred = 1, .at_once = 2, .early = 2});
}

// A chain of random operations on activations and parameters, which it uses several times.
Case random_case(uint64_t seed) {
  Tensors parameters;
  for (uint64_t i = 0; i < 4; ++i) parameters.push_back(parameter({6, 6}, i, at::kDouble));
  const Part part = [parameters, seed](const Tensors& inputs) {
    std::mt19937_64 random(seed);
    Tensors made = inputs;
    made.insert(made.end(), parameters.begin(), parameters.end());
    for (int i = 0; i < 14; ++i) {
      const at::Tensor a = made[random() % made.size()], b = made[random() % made.size()];
      const at::Tensor results[] = {at::mm(a, b),
                                    a + b,
                                    a * b,
                                    at::relu(a),
                                    at::maximum(a, b),
                                    a - b.t(),
                                    at::cat({a, b}).narrow(0, 3, 6),
                                    Scale::apply(a, b),
                                    a.tanh(),
                                    at::addmm(a, b, a),
                                    at::layer_norm(a, {6}, b[0])};
      made.push_back(results[random() % std::size(results)]);
    }
    return Tensors(made.end() - 3, made.end());
  };
  return {part, {numbers({6, 6}, 50, at::kDouble), numbers({6, 6}, 51, at::kDouble)}, parameters};
}

TEST(SplitBackward, GivesTheGradientsOfOneBackwardOnRandomGraphs) {
  int deferred = 0, at_once = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const Case the_case = random_case(seed);
    const Gradients expected = one_backward(the_case);
    Pass pass = forward(the_case);
    SplitBackward split(pass.outputs, pass.gradients, pass.inputs);
    expect_equal(split.input_gradients(), expected.inputs, 1e-12, "input");
    split.weight_gradients();
    expect_equal(take_gradients(the_case.parameters), expected.parameters, 1e-12, "parameter");
    deferred += split.deferred();
    at_once += split.at_once();
  }
  EXPECT_GT(deferred, 50);
  EXPECT_GT(at_once, 50);
}

}  // namespace
}  // namespace trireme::split_backward_test
