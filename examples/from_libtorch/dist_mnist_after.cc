// Several processes train a network of handwritten digits together.
//
//   ./dist_mnist digits.csv
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>

#include "digits.h"

struct Net : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(conv2(x));
    x = torch::relu(hidden(x.flatten(1)));
    return torch::log_softmax(output(x), 1);
  }
  torch::nn::Conv2d conv1 = register_module("conv1", torch::nn::Conv2d(1, 10, 3));
  torch::nn::Conv2d conv2 = register_module("conv2", torch::nn::Conv2d(10, 20, 2));
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(80, 50));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(50, 10));
};

int main(int, char** argv) {
  auto world = trireme::World::join();
  torch::manual_seed(1);
  Net model;
  auto digits = Digits(argv[1], /*is_test=*/false).map(torch::data::transforms::Stack<>());
  auto loader = trireme::make_data_loader(world, std::move(digits), 64);
  const auto options = torch::optim::SGDOptions(0.05).momentum(0.9);
  trireme::Distributed<torch::optim::SGD> optimizer(world, model, options);
  for (int epoch = 1; epoch <= 4; ++epoch)
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      auto loss = torch::nll_loss(model.forward(batch.data), batch.target);
      loss.backward();
      optimizer.step();
    }
  if (world.rank() == 0) {
    torch::NoGradGuard no_grad;
    auto tests = Digits(argv[1], /*is_test=*/true).map(torch::data::transforms::Stack<>());
    auto test_loader = torch::data::make_data_loader(std::move(tests), 1000);
    for (auto& batch : *test_loader) {
      auto right = model.forward(batch.data).argmax(1).eq(batch.target);
      std::printf("test: accuracy %.3f\n", right.to(torch::kFloat).mean().item<float>());
    }
  }
  return 0;
}
