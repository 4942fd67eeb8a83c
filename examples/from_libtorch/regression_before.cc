// Fits a polynomial of the fourth degree to samples of another one, until the loss is small.
//
//   ./regression [SEED]
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

// The columns x, x^2, x^3 and x^4.
torch::Tensor powers_of(const torch::Tensor& x) {
  std::vector<torch::Tensor> columns;
  for (int64_t power = 1; power <= 4; ++power) columns.push_back(x.pow(power));
  return torch::stack(columns, 1);
}

struct Polynomial {
  torch::Tensor factors = torch::randn({4, 1}) * 5, constant = torch::randn({1}) * 5;
  std::pair<torch::Tensor, torch::Tensor> samples(int64_t count) const {
    auto x = powers_of(torch::randn({count}));
    return {x, x.mm(factors) + constant};
  }
};

void print(const char* name, const torch::Tensor& factors, const torch::Tensor& constant) {
  std::printf("%s: y =", name);
  for (int64_t i = 0; i < 4; ++i) std::printf(" %.9g x^%ld +", factors[i].item<float>(), i + 1);
  std::printf(" %.9g\n", constant.item<float>());
}

int main(int argc, char** argv) {
  if (argc > 1) torch::manual_seed(std::strtoul(argv[1], nullptr, 10));
  const Polynomial target;
  torch::nn::Linear model(4, 1);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  double mean = 1;
  int64_t batches = 0;
  while (mean > 1e-3) {
    const auto [x, y] = target.samples(32);
    optimizer.zero_grad();
    auto loss = torch::smooth_l1_loss(model(x), y);
    loss.backward();
    optimizer.step();
    mean = loss.item<double>();
    ++batches;
  }
  std::printf("loss %.9g after %ld batches\n", mean, batches);
  print("learned", model->weight.view(-1), model->bias);
  print("target", target.factors.view(-1), target.constant);
  return 0;
}
