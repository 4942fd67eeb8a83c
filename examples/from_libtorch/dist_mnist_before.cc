// Several processes train a network of handwritten digits together.
//
//   ./dist_mnist digits.csv
//
// Each process needs RANK, WORLD_SIZE, and MEETING: a file that is not there yet, by which the
// processes find each other.
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

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

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  if (!value) throw std::runtime_error(std::string(name) + " is not set");
  return value;
}

c10::intrusive_ptr<c10d::Backend> make_group(int rank, int size) {
  auto store = c10::make_intrusive<c10d::FileStore>(variable("MEETING"), size);
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

void wait_for(const std::vector<c10::intrusive_ptr<c10d::Work>>& works) {
  for (const auto& work : works) work->wait();
}

// All processes begin with the parameters of rank 0.
void share_parameters(c10d::Backend& group, const Net& model) {
  torch::NoGradGuard no_grad;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (auto& parameter : model.parameters()) {
    std::vector<torch::Tensor> one = {parameter};
    works.push_back(group.broadcast(one));
  }
  wait_for(works);
}

// Gradients become the means over all processes.
void average_gradients(c10d::Backend& group, const Net& model) {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (auto& parameter : model.parameters()) {
    std::vector<torch::Tensor> one = {parameter.mutable_grad()};
    works.push_back(group.allreduce(one));
  }
  wait_for(works);
  for (auto& parameter : model.parameters()) parameter.mutable_grad().div_(group.getSize());
}

int main(int, char** argv) {
  const int rank = std::stoi(variable("RANK"));
  const int size = std::stoi(variable("WORLD_SIZE"));
  auto group = make_group(rank, size);
  torch::manual_seed(1);
  Net model;
  share_parameters(*group, model);
  auto digits = Digits(argv[1], /*is_test=*/false).map(torch::data::transforms::Stack<>());
  auto sampler = torch::data::samplers::DistributedRandomSampler(digits.size().value(), size, rank,
                                                                 /*allow_duplicates=*/true);
  auto loader = torch::data::make_data_loader(std::move(digits), sampler, 64 / size);
  const auto options = torch::optim::SGDOptions(0.05).momentum(0.9);
  torch::optim::SGD optimizer(model.parameters(), options);
  for (int epoch = 1; epoch <= 4; ++epoch)
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      auto loss = torch::nll_loss(model.forward(batch.data), batch.target);
      loss.backward();
      average_gradients(*group, model);
      optimizer.step();
    }
  if (rank == 0) {
    torch::NoGradGuard no_grad;
    auto tests = Digits(argv[1], /*is_test=*/true).map(torch::data::transforms::Stack<>());
    auto test_loader = torch::data::make_data_loader(std::move(tests), 1000);
    for (auto& batch : *test_loader) {
      auto right = model.forward(batch.data).argmax(1).eq(batch.target);
      std::printf("test: accuracy %.3f\n", right.to(torch::kFloat).mean().item<float>());
    }
  }
  group->barrier()->wait();
  return 0;
}
