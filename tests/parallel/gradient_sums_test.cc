#include <trireme/parallel/pipeline/gradient_sums.h>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <trireme/tensor/saved_tensors.h>

namespace trireme::pipeline {
namespace {

using torch::nn::Linear;
using torch::nn::LinearOptions;

// Three dimensions, and layers with and without bias.
torch::nn::Sequential small_chain() {
  torch::nn::Sequential chain(Linear(6, 8), torch::nn::ReLU(),
                              Linear(LinearOptions(8, 5).bias(false)), torch::nn::Tanh(),
                              Linear(5, 3));
  chain->to(at::kDouble);
  return chain;
}

// Keeps tensors as usual, and counts how often they are unpacked.
class CountingKeeper : public SavedTensorKeeper {
 public:
  explicit CountingKeeper(int& count) : count_(count) {}
  std::unique_ptr<SavedTensor> keep(const at::Tensor& tensor) override {
    struct Counted : SavedTensor {
      Counted(at::Tensor given, int& number) : tensor(std::move(given)), count(number) {}
      at::Tensor get() override {
        ++count;
        return tensor;
      }
      at::Tensor tensor;
      int& count;
    };
    return std::make_unique<Counted>(tensor.tensor_data(), count_);
  }

 private:
  int& count_;
};

void run_backward(const at::Tensor& loss, bool within_products) {
  if (within_products) add_within_products({torch::autograd::impl::gradient_edge(loss)});
  loss.backward();
}

std::vector<at::Tensor> gradients_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : module.parameters())
    gradients.push_back(parameter.grad().clone());
  return gradients;
}

TEST(GradientSums, AreThoseOfAutograd) {
  at::manual_seed(3);
  auto chain = small_chain();
  const at::Tensor data = at::randn({4, 2, 7, 6}, at::kDouble);
  std::vector<at::Tensor> results[2];
  for (const bool within : {false, true}) {
    chain->zero_grad();
    for (int pass = 0; pass < 4; ++pass)
      run_backward(chain->forward(data[pass]).square().sum(), within);
    results[within] = gradients_of(*chain);
  }
  for (size_t i = 0; i < results[0].size(); ++i)
    EXPECT_TRUE(results[0][i].allclose(results[1][i], 1e-12, 1e-12)) << i;
}

// The operation is gone from the graph, so the gradient's memory is that of the first backward,
// and its version counts one operation in place.
TEST(GradientSums, AreAddedInPlaceByOneOperation) {
  Linear layer(4, 3);
  const at::Tensor data = at::randn({5, 4});
  run_backward(layer(data).sum(), true);
  const at::Tensor gradient = layer->weight.grad();
  const auto version = gradient._version();
  const at::Tensor loss = layer(data).sum();
  const auto product = torch::autograd::impl::gradient_edge(loss).function->next_edge(0).function;
  ASSERT_TRUE(product->next_edge(2).is_valid());
  add_within_products({torch::autograd::impl::gradient_edge(loss)});
  EXPECT_FALSE(product->next_edge(2).is_valid());
  loss.backward();
  EXPECT_TRUE(layer->weight.grad().is_same(gradient));
  EXPECT_EQ(gradient._version(), version + 1);
}

TEST(GradientSums, CountAWeightThatIsUsedTwiceTwice) {
  at::manual_seed(3);
  Linear layer(LinearOptions(4, 4).bias(false));
  const at::Tensor data = at::randn({5, 4});
  std::vector<at::Tensor> results[2];
  for (const bool within : {false, true}) {
    layer->zero_grad();
    for (int pass = 0; pass < 2; ++pass)
      run_backward((layer(layer(data)).sum() + layer->weight.square().sum()), within);
    results[within] = gradients_of(*layer);
  }
  EXPECT_TRUE(results[0][0].allclose(results[1][0], 1e-5, 1e-6));
}

// An unpack hook may read a file or compute, so it must run once.
TEST(GradientSums, UnpackSavedTensorsOnce) {
  at::manual_seed(3);
  auto chain = small_chain();
  const at::Tensor data = at::randn({4, 2, 7, 6}, at::kDouble);
  std::vector<at::Tensor> plain;
  int counts[2] = {0, 0};
  for (const bool within : {false, true}) {
    chain->zero_grad();
    for (int pass = 0; pass < 2; ++pass) {
      CountingKeeper keeper(counts[within]);
      at::Tensor loss;
      {
        const SavedTensorScope scope(&keeper);
        loss = chain->forward(data[pass]).square().sum();
      }
      run_backward(loss, within);
    }
    if (!within) plain = gradients_of(*chain);
  }
  EXPECT_EQ(counts[0], counts[1]);
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(plain[i].allclose(gradients_of(*chain)[i], 1e-12, 1e-12)) << i;
}

TEST(GradientSums, LeaveComplexWeightsAndProductsWithHooksBehindThemAlone) {
  const at::Tensor data = at::randn({5, 4}, at::kComplexDouble);
  at::Tensor expected;
  for (const bool within : {false, true}) {
    const at::Tensor weight = at::ones({3, 4}, at::kComplexDouble).requires_grad_();
    for (int pass = 0; pass < 2; ++pass)
      run_backward(at::abs(at::matmul(data, weight.t())).sum(), within);
    if (within)
      EXPECT_TRUE(weight.grad().allclose(expected));
    else
      expected = weight.grad();
  }
  Linear layer(4, 3);
  struct Sees : torch::autograd::FunctionPostHook {
    explicit Sees(int& number) : count(number) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      count += outputs[2].defined();
      return outputs;
    }
    int& count;
  };
  int seen = 0;
  for (int pass = 0; pass < 3; ++pass) {
    const at::Tensor output = layer(at::ones({5, 4}));
    output.grad_fn()->add_post_hook(std::make_unique<Sees>(seen));
    run_backward(output.sum(), true);
  }
  EXPECT_EQ(seen, 3);
}

// Hooks of a user must see each gradient.
TEST(GradientSums, LeaveWeightsWithHooksAlone) {
  Linear layer(4, 3);
  int calls = 0;
  layer->weight.register_hook([&](const at::Tensor& gradient) {
    ++calls;
    return gradient * 2;
  });
  const at::Tensor data = at::ones({5, 4});
  for (int pass = 0; pass < 3; ++pass) run_backward(layer(data).sum(), true);
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(layer->weight.grad().equal(at::full({3, 4}, 3 * 2 * 5.0)));
}

TEST(GradientSums, LeaveFactorsAndGradientsOfOtherTypesAlone) {
  Linear layer(4, 3);
  layer->weight.mutable_grad() = at::zeros({4, 3}).t();  // Not contiguous.
  run_backward(layer(at::ones({5, 4})).sum(), true);
  EXPECT_TRUE(layer->weight.grad().equal(at::full({3, 4}, 5.0)));

  const at::Tensor bias = at::zeros({2}).requires_grad_();
  const at::Tensor right = at::ones({3, 2}).requires_grad_();
  for (int pass = 0; pass < 2; ++pass)  // Not transposed, and a factor of 3.
    run_backward(at::addmm(bias, at::ones({5, 3}), right, 1, 3).sum(), true);
  EXPECT_TRUE(right.grad().equal(at::full({3, 2}, 30.0)));
  const at::Tensor weight = at::ones({2, 3}).requires_grad_();
  for (int pass = 0; pass < 2; ++pass)
    run_backward(at::addmm(bias, at::ones({5, 3}), weight.t(), 1, 3).sum(), true);
  EXPECT_TRUE(weight.grad().equal(at::full({2, 3}, 30.0)));
}

}  // namespace
}  // namespace trireme::pipeline
