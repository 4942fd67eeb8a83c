// A network learns images that a list of files names: each line has a path, a class, and "train"
// or "test". The images are grey ones of 8 x 8 pixels in the format PGM.
//
//   ./custom_dataset list.txt
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using Files = std::vector<std::pair<std::string, int64_t>>;

Files read_list(const std::string& list, const std::string& wanted) {
  Files files;
  std::ifstream text(list);
  std::string path, use;
  for (int64_t label = 0; text >> path >> label >> use;)
    if (use == wanted) files.emplace_back(path, label);
  if (files.empty()) throw std::runtime_error("no image for " + wanted + " in " + list);
  return files;
}

class Images : public torch::data::datasets::Dataset<Images> {
 public:
  explicit Images(Files files) : files_(std::move(files)) {}
  torch::data::Example<> get(size_t index) override {
    const auto& [path, label] = files_.at(index);
    std::ifstream file(path, std::ios::binary);
    std::string format;
    int64_t width = 0, height = 0, largest = 0;
    file >> format >> width >> height >> largest;
    file.get();
    auto pixels = torch::empty({1, height, width}, torch::kByte);
    file.read(static_cast<char*>(pixels.data_ptr()), pixels.numel());
    if (!file || format != "P5") throw std::runtime_error("no image: " + path);
    return {pixels.to(torch::kFloat) / largest, torch::tensor(label)};
  }
  std::optional<size_t> size() const override { return files_.size(); }

 private:
  Files files_;
};

struct NetworkImpl : torch::nn::SequentialImpl {
  NetworkImpl() {
    push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)));
    push_back(torch::nn::ReLU());
    push_back(torch::nn::MaxPool2d(2));
    push_back(torch::nn::Flatten());
    push_back(torch::nn::Dropout(0.1));
    push_back(torch::nn::Linear(8 * 4 * 4, 32));
    push_back(torch::nn::ReLU());
    push_back(torch::nn::Linear(32, 10));
    push_back(torch::nn::LogSoftmax(1));
  }
};
TORCH_MODULE(Network);

template <typename Loader>
void train(Network& network, Loader& loader, torch::optim::Optimizer& optimizer) {
  network->train();
  for (auto& batch : loader) {
    auto loss = torch::nll_loss(network->forward(batch.data), batch.target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}

template <typename Loader>
void test(int epoch, Network& network, Loader& loader) {
  torch::NoGradGuard no_grad;
  network->eval();
  double loss = 0;
  int64_t correct = 0, samples = 0;
  for (auto& batch : loader) {
    torch::Tensor output = network->forward(batch.data);
    torch::Tensor sum = torch::nll_loss(output, batch.target, {}, torch::Reduction::Sum);
    loss += sum.item<double>();
    torch::Tensor right = output.argmax(1).eq(batch.target).sum();
    correct += right.item<int64_t>();
    samples += batch.data.size(0);
  }
  std::printf("epoch %d: loss %.9g, accuracy %.3f\n", epoch, loss / samples,
              1.0 * correct / samples);
}

int main(int, char** argv) {
  auto world = trireme::World::join();
  torch::manual_seed(1);
  auto images = Images(read_list(argv[1], "train")).map(torch::data::transforms::Stack<>());
  const auto batches = torch::data::DataLoaderOptions().batch_size(16).workers(2);
  auto loader = trireme::make_data_loader(world, std::move(images), batches);
  auto tests = Images(read_list(argv[1], "test")).map(torch::data::transforms::Stack<>());
  using InOrder = torch::data::samplers::SequentialSampler;
  auto test_loader = torch::data::make_data_loader<InOrder>(std::move(tests), 50);
  Network network;
  const auto options = torch::optim::SGDOptions(0.05).momentum(0.9);
  trireme::Distributed<torch::optim::SGD> optimizer(world, network, options);
  for (int epoch = 1; epoch <= 4; ++epoch) {
    train(network, *loader, optimizer);
    test(epoch, network, *test_loader);
  }
  return 0;
}
