// The model, the data and the steps of the loops in written_*.cc and mistakes_*.cc.
#pragma once
#include <torch/torch.h>
#include <trireme/base/json.h>
#include <trireme/parallel/data_loader.h>
#include <trireme/parallel/data_parallel_options.h>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace loops {

using trireme::World;

// TEST_DEVICE, such as "hpu:1" (tests/stand_in); else the CPU. "hpu:" is that of the rank.
inline torch::Device device() {
  const char* const name = std::getenv("TEST_DEVICE");
  if (!name) return torch::kCPU;
  const char* const rank = std::getenv("TRIREME_WORKER");
  const std::string text = name;
  return text.ends_with(':') ? text + (rank ? rank : "0") : text;
}

struct Net : torch::nn::Module {
  Net() {
    hidden = register_module("hidden", torch::nn::Linear(6, 16));
    output = register_module("output", torch::nn::Linear(16, 3));
  }
  torch::Tensor forward(const torch::Tensor& data) { return output(torch::tanh(hidden(data))); }
  torch::nn::Linear hidden{nullptr}, output{nullptr};
};

// 103 samples: batches of 20 end with one of 3.
class Samples : public torch::data::datasets::Dataset<Samples> {
 public:
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<double>(index);
    std::vector<double> data;
    for (int k = 0; k < 6; ++k) data.push_back(std::sin(0.7 * i + 1.3 * k + 0.01 * i * k));
    return {torch::tensor(data, torch::kDouble), torch::tensor(static_cast<int64_t>(index % 3))};
  }
  std::optional<size_t> size() const override { return 103; }
};

inline double sum_of(const torch::nn::Module& module) {
  double sum = 0;
  for (const auto& parameter : module.parameters())
    sum += (parameter.detach() *
            torch::arange(1, parameter.numel() + 1, parameter.options()).view(parameter.sizes()))
               .sum()
               .item<double>();
  return sum;
}

inline void print(const World& world, const trireme::Json& facts) {
  if (world.rank() == 0) std::cout << facts.dump() << std::endl;
}

inline torch::data::Example<> moved(const torch::data::Example<>& batch) {
  return {batch.data.to(device()), batch.target.to(device())};
}

inline torch::Tensor loss_of(Net& model, const torch::data::Example<>& on_host) {
  const auto batch = moved(on_host);
  return torch::nn::functional::cross_entropy(model.forward(batch.data), batch.target);
}

inline auto loader_for(World& world, int64_t batch = 20) {
  return trireme::make_data_loader(world, Samples().map(torch::data::transforms::Stack<>()),
                                   batch);
}

// A batch that is another one on each rank, from the numbers of the rank.
inline torch::Tensor samples() { return torch::rand({2, 6}); }

inline void one_step(Net& model, torch::optim::Optimizer& optimizer, double factor = 1) {
  optimizer.zero_grad();
  (model.forward(samples()).sum() * factor).backward();
  optimizer.step();
}

// A number or a text from the environment; -1 or empty if it is not there.
inline int number_in(const char* name) {
  const char* const text = std::getenv(name);
  return text ? std::atoi(text) : -1;
}
inline std::string text_in(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "";
}

// The rank that makes a mistake, also if it is alone.
inline bool errs(const World& world) { return world.rank() == world.size() - 1; }
inline bool is_last(const World& world) { return world.size() > 1 && errs(world); }

// With TEST_APART=1 each replica of DataParallel has parameters of its own.
inline trireme::DataParallelOptions replica_options() {
  return {.share_parameters = std::getenv("TEST_APART") == nullptr};
}

// The loops of a file, by name.
using Loops = std::map<std::string, std::function<void(World&)>>;
Loops written_steps();
Loops written_data();
Loops written_elastic();
Loops mistakes_in_steps();
Loops mistakes_in_values();
Loops mistakes_between_ranks();

// Runs the loops that the only argument names, with "+" between them. Each of several begins with
// a line that names it. With TEST_CODE the programme calls no leave(), and ends with that exit
// code.
inline int run_named(int argc, char** argv, const std::vector<Loops>& files) {
  if (argc != 2) return 2;
  Loops loops;
  for (const Loops& each : files) loops.insert(each.begin(), each.end());
  trireme::WorldOptions options;
  if (const int seconds = number_in("TEST_TIMEOUT"); seconds > 0)
    options.timeout = std::chrono::seconds(seconds);
  // An Error that nobody catches has an exit code all the same.
  auto world = World::join(options);
  std::istringstream names(argv[1]);
  const bool are_several = std::string(argv[1]).find('+') != std::string::npos;
  for (std::string name; std::getline(names, name, '+');) {
    if (are_several) print(world, {{"loop", name}});
    torch::manual_seed(7);
    loops.at(name)(world);
  }
  if (const char* const code = std::getenv("TEST_CODE")) return std::atoi(code);
  world.leave();  // A second one does nothing.
  return 0;
}

}  // namespace loops
