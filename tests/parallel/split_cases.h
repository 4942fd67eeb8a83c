// Parts of a model whose backward in two halves is compared with one ordinary backward.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <fmt/format.h>

#include <trireme/parallel/pipeline/split_backward.h>
#include <functional>
// This header must come after those of torch.
#include <gmock/gmock.h>

namespace trireme::split_backward_test {

using pipeline::SplitBackward;
using ::testing::HasSubstr;
using Part = std::function<Tensors(const Tensors& inputs)>;

inline at::Tensor numbers(at::IntArrayRef shape, uint64_t seed,
                          at::ScalarType dtype = at::kFloat) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kDouble))
      .mul(0.3)
      .to(dtype);
}
inline at::Tensor parameter(at::IntArrayRef shape, uint64_t seed,
                            at::ScalarType dtype = at::kFloat) {
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
inline Pass forward(const Case& the_case) {
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
inline Tensors take_gradients(const Tensors& tensors) {
  Tensors taken;
  for (const at::Tensor& tensor : tensors)
    taken.push_back(std::exchange(tensor.mutable_grad(), at::Tensor()));
  return taken;
}

struct Gradients {
  Tensors inputs, parameters;
};
inline Gradients one_backward(const Case& the_case) {
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

inline void expect_equal(const Tensors& actual, const Tensors& expected, double tolerance,
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
inline void expect_split(const Case& the_case, const Expected& expected, double tolerance = 0) {
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

// Scales by a parameter. Its backward computes both gradients, whichever is asked for.
inline int scale_calls = 0;
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

}  // namespace trireme::split_backward_test
