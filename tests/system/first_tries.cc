// Mistakes of first tries. The compiler says what to write instead (test_first_tries.py).
#include <torch/csrc/jit/api/module.h>
#include <torch/data/datasets/base.h>
#include <torch/data/example.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <trireme/data/from_dataset.h>
#include <trireme/data/loader.h>
#include <trireme/parallel/data_loader.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/distributed.h>

struct Net : torch::nn::Module {};
struct Samples : torch::data::datasets::Dataset<Samples> {
  torch::data::Example<> get(size_t) override { return {}; }
  std::optional<size_t> size() const override { return 8; }
};

void first_tries(trireme::World& world) {
  Net on_the_stack;
  trireme::DataParallel one(world, on_the_stack, trireme::SGD{.lr = 0.1});
  auto model = std::make_shared<Net>();
  trireme::DataParallel two(world, model, torch::optim::SGDOptions(0.1));
  trireme::Loader three(world, Samples(), {.batch = 8});
  torch::optim::SGD made(model->parameters(), 0.1);
  trireme::Distributed<torch::optim::SGD> four(world, model, made);
  trireme::Distributed<torch::optim::SGD> five(world, &on_the_stack, torch::optim::SGDOptions(1));
  trireme::Distributed<torch::optim::SGD> six(on_the_stack, torch::optim::SGDOptions(0.1));
  trireme::make_data_loader(Samples(), 64);
  trireme::make_data_loader(world, Samples(),
                            torch::data::samplers::DistributedRandomSampler(8, 2, 0), 64);
  trireme::Distributed<torch::optim::SGDOptions> seven(world, model,
                                                       torch::optim::SGDOptions(0.1));
  seven.zero_grad();
  seven.step();
  torch::jit::script::Module script("Script");
  trireme::DataParallel eight(world, script, trireme::SGD{.lr = 0.1});
  trireme::model_factory<torch::jit::script::Module>("Script");
  trireme::Loader nine(world, trireme::from_dataset(Samples()),
                       torch::data::samplers::RandomSampler(8), {.batch = 8});
  trireme::from_dataset(Samples(), torch::data::samplers::RandomSampler(8));
}
