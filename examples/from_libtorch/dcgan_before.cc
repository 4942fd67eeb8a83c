// A generator learns to draw digits, and a discriminator to tell them from real ones.
//
//   ./dcgan digits.csv [FOLDER]      saves to the folder
#include <torch/torch.h>

#include <cstdio>
#include <string>

#include "digits.h"

namespace nn = torch::nn;

constexpr int64_t kNoise = 16, kBatch = 64, kSaveEvery = 20;

nn::Sequential make_generator() {
  return nn::Sequential(
      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(kNoise, 32, 4).bias(false)),
      nn::BatchNorm2d(32), nn::ReLU(),
      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(32, 1, 4).stride(2).padding(1)),
      nn::Sigmoid());
}

nn::Sequential make_discriminator() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 16, 4).stride(2).padding(1)),
                        nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Conv2d(nn::Conv2dOptions(16, 32, 3).bias(false)), nn::BatchNorm2d(32),
                        nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)), nn::Flatten(),
                        nn::Linear(32 * 2 * 2, 1), nn::Sigmoid(),
                        nn::Flatten(nn::FlattenOptions().start_dim(0)));
}

int main(int argc, char** argv) {
  torch::manual_seed(1);
  const std::string folder = argc > 2 ? argv[2] : "";
  auto generator = make_generator();
  auto discriminator = make_discriminator();
  auto digits = Digits(argv[1], /*is_test=*/false).map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader(std::move(digits), kBatch);
  const auto options = torch::optim::AdamOptions(2e-3).betas({0.5, 0.9});
  torch::optim::Adam generator_optimizer(generator->parameters(), options);
  torch::optim::Adam discriminator_optimizer(discriminator->parameters(), options);

  int64_t step = 0;
  for (int epoch = 1; epoch <= 4; ++epoch)
    for (auto& batch : *loader) {
      discriminator->zero_grad();
      const int64_t samples = batch.data.size(0);
      auto real_labels = torch::empty(samples).uniform_(0.8, 1.0);
      auto real_loss =
          torch::binary_cross_entropy(discriminator->forward(batch.data), real_labels);
      real_loss.backward();
      auto drawn = generator->forward(torch::randn({samples, kNoise, 1, 1}));
      auto labels = torch::zeros(samples);
      auto drawn_loss =
          torch::binary_cross_entropy(discriminator->forward(drawn.detach()), labels);
      drawn_loss.backward();
      discriminator_optimizer.step();

      generator->zero_grad();
      auto loss = torch::binary_cross_entropy(discriminator->forward(drawn), labels.fill_(1));
      loss.backward();
      generator_optimizer.step();

      if (++step % kSaveEvery == 0) {
        std::printf("step %ld: discriminator %.9g, generator %.9g, mean of a pixel %.9g\n", step,
                    (real_loss + drawn_loss).item<float>(), loss.item<float>(),
                    drawn.mean().item<float>());
        if (folder.empty()) continue;
        torch::save(generator, folder + "/generator.pt");
        torch::save(generator_optimizer, folder + "/generator_optimizer.pt");
        torch::save(discriminator, folder + "/discriminator.pt");
        torch::save(discriminator_optimizer, folder + "/discriminator_optimizer.pt");
      }
    }
  return 0;
}
