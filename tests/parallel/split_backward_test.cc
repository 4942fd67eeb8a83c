// Backward in two halves gives the gradients of one ordinary backward, and each of them once.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/parallel/pipeline/split_backward.h>
#include <random>
// This header must come after those of torch.
#include <gmock/gmock.h>

namespace trireme::split_backward_test {
namespace {

using pipeline::SplitBackward;
using ::testing::HasSubstr;
using Part = std::function<Tensors(const Tensors& inputs)>;

at::Tensor numbers(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kDouble))
      .mul(0.3)
      .to(dtype);
}
at::Tensor parameter(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  return numbers(shape, seed, dtype).requires_grad_(true);
}

// A part of a model, with the gradients that come from the part behind it.
struct Case {
  Part part;
  Tensors inputs, parameters;
  // By output: whether it gets a gradient.
  std::vector<bool> has_gradient = {};
};
struct Pass {
  Tensors inputs, outputs, gradients;
};
Pass forward(const Case& the_case) {
  at::manual_seed(17);
  Pass pass;
  for (const at::Tensor& input : the_case.inputs)
    pass.inputs.push_back(input.detach().clone().requires_grad_(input.is_floating_point()));
  pass.outputs = the_case.part(pass.inputs);
  for (size_t i = 0; i < pass.outputs.size(); ++i) {
    const bool has = the_case.has_gradient.empty() || the_case.has_gradient[i];
    pass.gradients.push_back(
        has ? numbers(pass.outputs[i].sizes(), 1000 + i, pass.outputs[i].scalar_type())
            : at::Tensor());
  }
  return pass;
}
Tensors take_gradients(const Tensors& tensors) {
  Tensors taken;
  for (const at::Tensor& tensor : tensors)
    taken.push_back(std::exchange(tensor.mutable_grad(), at::Tensor()));
  return taken;
}

struct Gradients {
  Tensors inputs, parameters;
};
Gradients one_backward(const Case& the_case) {
  Pass pass = forward(the_case);
  Tensors outputs, gradients;
  for (size_t i = 0; i < pass.outputs.size(); ++i) {
    if (!pass.gradients[i].defined() || !pass.outputs[i].requires_grad()) continue;
    outputs.push_back(pass.outputs[i]);
    gradients.push_back(pass.gradients[i]);
  }
  if (!outputs.empty()) torch::autograd::backward(outputs, gradients);
  return {take_gradients(pass.inputs), take_gradients(the_case.parameters)};
}

void expect_equal(const Tensors& actual, const Tensors& expected, double tolerance,
                  const std::string& name) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    SCOPED_TRACE(fmt::format("{} {}", name, i));
    ASSERT_EQ(actual[i].defined(), expected[i].defined());
    if (!actual[i].defined()) continue;
    ASSERT_EQ(actual[i].sizes(), expected[i].sizes());
    if (tolerance == 0)
      EXPECT_TRUE(at::equal(actual[i], expected[i]));
    else
      EXPECT_LE((actual[i] - expected[i]).norm().item<double>(),
                tolerance * (expected[i].norm().item<double>() + 1e-30));
  }
}

struct Expected {
  int deferred = 0, at_once = 0;
  // The number of parameters that have a gradient after the first half.
  int early = 0;
};
// All bits are those of one backward.
void expect_split(const Case& the_case, const Expected& expected, double tolerance = 0) {
  const Gradients reference = one_backward(the_case);
  Pass pass = forward(the_case);
  SplitBackward split(pass.outputs, pass.gradients, pass.inputs);
  EXPECT_EQ(split.deferred(), expected.deferred);
  EXPECT_EQ(split.at_once(), expected.at_once);
  const Tensors inputs = split.input_gradients();
  const auto has = [](const at::Tensor& tensor) { return tensor.grad().defined(); };
  EXPECT_EQ(std::ranges::count_if(the_case.parameters, has), expected.early);
  EXPECT_EQ(std::ranges::count_if(pass.inputs, has), 0);
  split.weight_gradients();
  expect_equal(inputs, reference.inputs, tolerance, "input");
  expect_equal(take_gradients(the_case.parameters), reference.parameters, tolerance, "parameter");
}

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
  expect_split({part, {numbers({5, 8}, 50)}, weights}, {.deferred = 4}, 1e-6);
}

TEST(SplitBackward, WaitsWithAWeightThatIsMadeOfParameters) {
  const Tensors weights = {parameter({8, 8}, 1), parameter({8, 1}, 2), parameter({8}, 3)};
  int hooks = 0;
  const Part part = [&](const Tensors& inputs) {
    const at::Tensor weight = weights[0] / weights[0].norm(2, {1}, true) * weights[1];
    weight.register_hook([&](const at::Tensor& gradient) { return ++hooks, 2 * gradient; });
    return Tensors{at::linear(at::relu(at::linear(inputs[0], weight, weights[2])), weight)};
  };
  expect_split({part, {numbers({5, 8}, 50)}, weights}, {.deferred = 2}, 1e-6);
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

// Scales by a parameter. Its backward computes both gradients, whichever is asked for.
int scale_calls = 0;
struct Scale : torch::autograd::Function<Scale> {
  using Context = torch::autograd::AutogradContext;
  using List = torch::autograd::variable_list;
  static at::Tensor forward(Context* context, const at::Tensor& x, const at::Tensor& factor) {
    context->save_for_backward({x, factor});
    return x.mul(factor);
  }
  static List backward(Context* context, List gradients) {
    ++scale_calls;
    const List saved = context->get_saved_variables();
    return {gradients[0] * saved[1], (gradients[0] * saved[0]).sum_to_size(saved[1].sizes())};
  }
};

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
  expect_equal(take_gradients(weights), expected, 0, "parameter");
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
  for (uint64_t seed = 0; seed < 300; ++seed) {
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
  EXPECT_GT(deferred, 100);
  EXPECT_GT(at_once, 100);
}

}  // namespace
}  // namespace trireme::split_backward_test
