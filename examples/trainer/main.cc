// The Trainer: one word chooses the strategy.
//
//   ./trainer digits.csv.gz one_device                                    one replica
//   ./trainer digits.csv.gz mirrored                                      two replicas, as threads
//   trireme launch --workers 2 -- ./trainer digits.csv.gz multi_worker    two processes
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <iostream>

struct Net : torch::nn::Module {
  explicit Net(int64_t width) {
    hidden = register_module("hidden", torch::nn::Linear(64, width));
    output = register_module("output", torch::nn::Linear(width, 10));
  }
  torch::Tensor forward(torch::Tensor images) {
    return output(torch::relu(hidden(images.flatten(1))));
  }
  torch::nn::Linear hidden{nullptr}, output{nullptr};
};

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: trainer digits.csv.gz one_device|mirrored|multi_worker\n";
    return 2;
  }
  try {
    const auto table = trireme::data::read_digits(argv[1]);
    const auto split = trireme::plan::plan_split(table.count, 0.2, /*seed=*/20260101);
    auto train = std::make_shared<trireme::ImageSource>(
        trireme::data::select(table, split.train.numbers()));
    auto test =
        std::make_shared<trireme::ImageSource>(trireme::data::select(table, split.test.numbers()));

    trireme::TrainerOptions options;
    options.strategy = argv[2];  // one_device, mirrored or multi_worker
    options.replicas = options.strategy == "mirrored" ? 2 : 1;
    options.epochs = 10;
    options.sinks.push_back(trireme::monitor::make_progress(stdout, /*terminal=*/false));

    trireme::Job job;
    job.name = "digits";
    job.model = trireme::model_factory<Net>(128);  // Every replica makes a model of its own.
    job.optimizer = trireme::SGD{.lr = 0.1, .momentum = 0.9};

    auto world = trireme::World::join();
    trireme::Trainer trainer(world, options);
    const trireme::Report report = trainer.fit(job, train, test);
    if (world.worker() == 0) std::cout << "accuracy " << report.eval->accuracy << std::endl;
    world.leave();
    return report.stopped ? trireme::kExitStopped : trireme::kExitOk;
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << "\n";
    return trireme::exit_code_of(error);
  }
}
