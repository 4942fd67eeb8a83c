// A training loop of your own, made data parallel.
//
//   ./own_loop digits.csv.gz                                    trains in one process
//   trireme launch --workers 2 -- ./own_loop digits.csv.gz      trains the same in two processes
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <iostream>

struct Net : torch::nn::Module {
  Net() {
    hidden = register_module("hidden", torch::nn::Linear(64, 128));
    output = register_module("output", torch::nn::Linear(128, 10));
  }
  torch::Tensor forward(torch::Tensor images) {
    return output(torch::relu(hidden(images.flatten(1))));
  }
  torch::nn::Linear hidden{nullptr}, output{nullptr};
};

int train(const char* file) {
  auto world = trireme::World::join();  // Finds this process's place in the job.
  torch::manual_seed(1);
  auto model = std::make_shared<Net>();  // Any torch::nn module.
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1, .momentum = 0.9});

  auto digits = std::make_shared<trireme::ImageSource>(trireme::data::read_digits(file));
  trireme::Loader loader(world, digits, {.batch = 64, .seed = 7});  // This replica's share of 64.

  for (int epoch = 0; epoch < 10; ++epoch) {
    trireme::StepOutcome outcome;
    for (const trireme::Batch& batch : loader) {
      auto loss = torch::nn::functional::cross_entropy(model->forward(batch.data), batch.target);
      outcome = replica.step(loss, batch.size());  // Backward, then the exchange with its update.
    }
    if (world.rank() == 0)
      std::cout << "epoch " << epoch << ": loss " << outcome.loss << std::endl;
  }
  world.leave();  // Without it, the end of this process looks like a crash to the others.
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: own_loop digits.csv.gz\n";
    return 2;
  }
  trireme::keep_freed_memory();  // Faster steps; resident memory stays at its peak.
  try {
    return train(argv[1]);
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << "\n";
    return trireme::exit_code_of(error);
  }
}
