// Transfer learning: a network that knows the digits 0 to 4 lends its backbone to one for all ten.
// Only the new head is trained, on as many processes as the launcher starts.
//
//   ./transfer_learning digits.csv.gz pretrained.pt
//   trireme launch --workers 2 -- ./transfer_learning digits.csv.gz pretrained.pt
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <iostream>

class Digits : public torch::data::datasets::Dataset<Digits> {
 public:
  Digits(const std::string& file, int64_t classes) : source_(trireme::data::read_digits(file)) {
    for (int64_t i = 0; i < source_.size(); ++i)
      if (source_.get(i).target.item<int64_t>() < classes) chosen_.push_back(i);
  }
  torch::data::Example<> get(size_t index) override {
    auto sample = source_.get(chosen_[index]);
    return {sample.data, sample.target};
  }
  std::optional<size_t> size() const override { return chosen_.size(); }

 private:
  trireme::ImageSource source_;
  std::vector<int64_t> chosen_;
};

struct Backbone : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    return torch::relu(hidden(torch::relu(conv(x)).flatten(1)));
  }
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(1, 8, 3));
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(8 * 6 * 6, 64));
};

struct Net : torch::nn::Module {
  Net(const std::string& name_of_head, int64_t classes)
      : head(register_module(name_of_head, torch::nn::Linear(64, classes))) {}
  torch::Tensor forward(torch::Tensor x) { return head(backbone->forward(x)); }
  std::shared_ptr<Backbone> backbone = register_module("backbone", std::make_shared<Backbone>());
  torch::nn::Linear head;
};

void train(trireme::World& world, Net& model, Digits digits, int epochs) {
  auto loader = trireme::make_data_loader(
      world, std::move(digits).map(torch::data::transforms::Stack<>()), 64);
  trireme::Distributed<torch::optim::Adam> optimizer(world, model,
                                                     torch::optim::AdamOptions(3e-3));
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(model.forward(batch.data), batch.target).backward();
      optimizer.step();
    }
}

double accuracy(trireme::World& world, Net& model, Digits digits) {
  return trireme::evaluate(world, std::move(digits).map(torch::data::transforms::Stack<>()), 256,
                           [&](const torch::data::Example<>& batch) {
                             return model.forward(batch.data).argmax(1).eq(batch.target);
                           })
      .to(torch::kFloat)
      .mean()
      .item<double>();
}

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: transfer_learning digits.csv.gz pretrained.pt\n", 2;
  auto world = trireme::World::join();
  torch::manual_seed(1);
  const bool is_first = world.rank() == 0;

  auto of_five = std::make_shared<Net>("fc", 5);
  train(world, *of_five, Digits(argv[1], 5), 6);
  const double before = accuracy(world, *of_five, Digits(argv[1], 5));
  if (is_first) torch::save(of_five, argv[2]);

  Net of_ten("head", 10);
  // Distributed gives every rank the weights that rank 0 has loaded.
  if (is_first)
    trireme::load_weights(of_ten, argv[2], {.drop = {"^fc\\."}, .allow_missing = {"^head\\."}});
  for (auto& parameter : of_ten.backbone->parameters()) parameter.requires_grad_(false);
  train(world, of_ten, Digits(argv[1], 10), 20);
  const double after = accuracy(world, of_ten, Digits(argv[1], 10));
  if (is_first)
    std::cout << "digits 0 to 4: accuracy " << before << "\nall digits: accuracy " << after
              << std::endl;
  world.leave();
}
