// A job whose model is cut into stages, one of which throws.
//
//   trireme launch --workers 4 -- stage_job STAGES SCHEDULE BLOCK forward|backward
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/data/source.h>
#include <trireme/train/trainer.h>
#include <cstdlib>
#include <string>

namespace {

using trireme::Block;
using trireme::Tensors;

// The block throws in its ninth forward of training, or in the backward of that.
struct Net : torch::nn::Module {
  Net(size_t bad_block, std::string bad_place) : bad(bad_block), place(std::move(bad_place)) {
    for (int i = 0; i < 6; ++i)
      layers.push_back(register_module("layer" + std::to_string(i),
                                       torch::nn::Linear(i == 0 ? 5 : 7, i == 5 ? 3 : 7)));
  }
  at::Tensor forward(const at::Tensor& x) { return trireme::output_of(blocks(), {x}); }
  std::vector<Block> blocks() {
    std::vector<Block> blocks;
    for (size_t i = 0; i < layers.size(); ++i)
      blocks.push_back(
          {"block" + std::to_string(i), {layers[i].ptr()}, [this, i](const Tensors& x) {
             const at::Tensor y = at::tanh(layers[i](x[0]));
             if (i == bad && is_training() && ++calls == 9) fail(y);
             return Tensors{y};
           }});
    return blocks;
  }
  void fail(const at::Tensor& y) const {
    const std::string text = fmt::format("block{} gives up in {}", bad, place);
    if (place == "forward") throw std::runtime_error(text);
    y.register_hook([text](const at::Tensor&) -> at::Tensor { throw std::runtime_error(text); });
  }

  size_t bad;
  std::string place;
  int calls = 0;
  std::vector<torch::nn::Linear> layers;
};

int train(int stages, const std::string& schedule, size_t block, const std::string& place) {
  trireme::TrainerOptions options;
  options.strategy = "pipeline";
  options.batch = 16;
  options.epochs = 20;
  options.division.mesh.pipeline = stages;
  options.division.pipeline = {schedule, 4, 0, "parameters"};
  trireme::Job job;
  job.name = "stages";
  job.model = trireme::model_factory<Net>(block, place);
  job.optimizer = trireme::SGD{.lr = 0.1};
  const auto data = std::make_shared<trireme::TensorSource>(
      at::randn({96, 5}, at::detail::createCPUGenerator(1)),
      at::randint(3, {96}, at::detail::createCPUGenerator(2), at::kLong));
  trireme::World world = trireme::World::join();
  trireme::Trainer(world, options).fit(job, data, nullptr);
  world.leave();
  return trireme::kExitOk;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return trireme::kExitUsage;
  try {
    return train(std::atoi(argv[1]), argv[2], static_cast<size_t>(std::atoi(argv[3])), argv[4]);
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return trireme::exit_code_of(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
