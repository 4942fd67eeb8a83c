// A convolutional network learns handwritten digits.
//
//   ./mnist digits.csv [DROPOUT]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>
#include <cstdlib>

#include "digits.h"

struct Net : torch::nn::Module {
  explicit Net(double part) : dropout(part) {}
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::dropout(conv2(x), dropout, is_training()));
    x = torch::relu(hidden(x.flatten(1)));
    x = torch::dropout(x, dropout, is_training());
    return torch::log_softmax(output(x), 1);
  }
  double dropout;
  torch::nn::Conv2d conv1 = register_module("conv1", torch::nn::Conv2d(1, 10, 3));
  torch::nn::Conv2d conv2 = register_module("conv2", torch::nn::Conv2d(10, 20, 2));
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(80, 50));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(50, 10));
};

template <typename Loader>
void train(int epoch, Net& model, Loader& loader, torch::optim::Optimizer& optimizer) {
  model.train();
  int step = 0;
  for (auto& batch : loader) {
    optimizer.zero_grad();
    torch::Tensor loss = torch::nll_loss(model.forward(batch.data), batch.target);
    loss.backward();
    optimizer.step();
    std::printf("epoch %d, step %d: loss %.9g of %ld samples\n", epoch, ++step, loss.item<float>(),
                batch.data.size(0));
  }
}

template <typename Loader>
void test(Net& model, Loader& loader, size_t samples) {
  torch::NoGradGuard no_grad;
  model.eval();
  double loss = 0;
  int64_t correct = 0;
  for (auto& batch : loader) {
    torch::Tensor output = model.forward(batch.data);
    torch::Tensor sum = torch::nll_loss(output, batch.target, {}, torch::Reduction::Sum);
    loss += sum.item<double>();
    torch::Tensor right = output.argmax(1).eq(batch.target).sum();
    correct += right.item<int64_t>();
  }
  std::printf("test: loss %.9g, accuracy %.3f\n", loss / samples, 1.0 * correct / samples);
}

int main(int argc, char** argv) {
  auto world = trireme::World::join();
  torch::manual_seed(1);
  Net model(argc > 2 ? std::atof(argv[2]) : 0.2);
  auto digits = Digits(argv[1], /*is_test=*/false).map(torch::data::transforms::Stack<>());
  using InOrder = torch::data::samplers::SequentialSampler;
  auto loader = trireme::make_data_loader<InOrder>(world, std::move(digits), 64);
  auto tests = Digits(argv[1], /*is_test=*/true).map(torch::data::transforms::Stack<>());
  const size_t test_samples = tests.size().value();
  auto test_loader = torch::data::make_data_loader<InOrder>(std::move(tests), 100);
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  trireme::Distributed<torch::optim::SGD> optimizer(world, model, options);
  for (int epoch = 1; epoch <= 4; ++epoch) {
    train(epoch, model, *loader, optimizer);
    test(model, *test_loader, test_samples);
  }
  return 0;
}
