// A new head learns digits on a backbone from TorchScript, which stays as it is.
//
//   ./transfer_learning digits.csv backbone.pt head.pt
#include <torch/script.h>
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <algorithm>
#include <cstdio>

#include "digits.h"

constexpr int64_t kFeatures = 64;

int main(int, char** argv) {
  auto world = trireme::World::join();
  torch::manual_seed(1);
  torch::jit::script::Module backbone = torch::jit::load(argv[2]);
  backbone.eval();
  torch::nn::Linear head(kFeatures, 10);
  const auto output_of = [&](const torch::Tensor& images) {
    const torch::Tensor features = backbone.forward({images}).toTensor();
    return head(features.detach());
  };
  auto digits = Digits(argv[1], /*is_test=*/false).map(torch::data::transforms::Stack<>());
  const size_t samples = digits.size().value();
  auto loader = trireme::make_data_loader(world, std::move(digits), 64);
  auto tests = Digits(argv[1], /*is_test=*/true).map(torch::data::transforms::Stack<>());
  const size_t test_samples = tests.size().value();
  auto test_loader = torch::data::make_data_loader(std::move(tests), 100);
  trireme::Distributed<torch::optim::Adam> optimizer(world, head, torch::optim::AdamOptions(0.01));
  double best = 0;
  for (int epoch = 1; epoch <= 6; ++epoch) {
    int64_t correct = 0, test_correct = 0;
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      torch::Tensor output = output_of(batch.data);
      torch::nn::functional::cross_entropy(output, batch.target).backward();
      optimizer.step();
      torch::Tensor right = output.argmax(1).eq(batch.target);
      right = trireme::gather_for_metrics(world, right);
      correct += right.sum().item<int64_t>();
    }
    torch::NoGradGuard no_grad;
    for (auto& batch : *test_loader)
      test_correct += output_of(batch.data).argmax(1).eq(batch.target).sum().item<int64_t>();
    const double accuracy = 1.0 * test_correct / test_samples;
    std::printf("epoch %d: accuracy %.6f, of tests %.6f, weights %.9g\n", epoch,
                1.0 * correct / samples, accuracy, head->weight.abs().sum().item<double>());
    if (accuracy > best && world.rank() == 0) torch::save(head, argv[3]);
    best = std::max(best, accuracy);
  }
  return 0;
}
