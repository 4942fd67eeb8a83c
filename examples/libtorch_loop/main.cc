// A LibTorch programme for one process, made data parallel. The lines with "Trireme:" were added
// or changed; all others are as they were.
//
//   ./libtorch_loop digits.csv.gz                                   trains in one process
//   trireme launch --workers 2 -- ./libtorch_loop digits.csv.gz     trains the same in two
#include <torch/torch.h>
#include <trireme/trireme.h>  // Trireme: added.

#include <iostream>

// The data set of this programme: handwritten digits of 8 x 8 pixels.
class Digits : public torch::data::datasets::Dataset<Digits> {
 public:
  explicit Digits(const std::string& file) : source_(trireme::data::read_digits(file)) {}
  torch::data::Example<> get(size_t index) override {
    auto sample = source_.get(static_cast<int64_t>(index));
    return {sample.data, sample.target};
  }
  std::optional<size_t> size() const override { return source_.size(); }

 private:
  trireme::ImageSource source_;
};

struct Net : torch::nn::Module {
  Net() {
    register_module("conv", conv);
    register_module("hidden", hidden);
    register_module("output", output);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(conv(x)).flatten(1);
    x = torch::dropout(torch::relu(hidden(x)), 0.2, is_training());
    return output(x);
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 8, 3)};
  torch::nn::Linear hidden{8 * 6 * 6, 64}, output{64, 10};
};

template <typename Loader>
void train(Net& model, Loader& loader, torch::optim::Optimizer& optimizer) {
  model.train();
  for (auto& batch : loader) {
    optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(model.forward(batch.data), batch.target);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model.parameters(), 5.0);
    optimizer.step();
  }
}

double accuracy(Net& model, Digits& digits) {
  torch::NoGradGuard no_grad;
  model.eval();
  auto all = digits.map(torch::data::transforms::Stack<>());
  std::vector<size_t> indices(*all.size());
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  auto batch = all.get_batch(indices);
  return model.forward(batch.data)
      .argmax(1)
      .eq(batch.target)
      .to(torch::kFloat)
      .mean()
      .item<double>();
}

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: libtorch_loop digits.csv.gz\n", 2;
  auto world = trireme::World::join();  // Trireme: added.
  torch::manual_seed(1);
  Net model;
  Digits digits(argv[1]);
  auto samples = digits.map(torch::data::transforms::Stack<>());
  const auto options = torch::optim::SGDOptions(0.05).momentum(0.9);
  auto loader = trireme::make_data_loader(world, samples, 64);  // Trireme: was torch::data's.
  trireme::Distributed<torch::optim::SGD> optimizer(world, model, options);  // Trireme: was SGD.
  torch::optim::StepLR schedule(optimizer, 4, 0.5);
  for (int epoch = 1; epoch <= 8; ++epoch) {
    train(model, *loader, optimizer);
    schedule.step();
    if (world.rank() == 0)  // Trireme: added.
      std::cout << "epoch " << epoch << ": accuracy " << accuracy(model, digits) << std::endl;
  }
}
