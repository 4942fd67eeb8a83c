// A job whose model is cut into stages, one of which throws.
//
//   trireme launch --workers 4 -- stage_job STAGES SCHEDULE BLOCK forward|backward BACKEND
#include <ATen/ATen.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/data/source.h>
#include <trireme/train/trainer.h>
#include <cstdlib>
#include <string>

#include "../train/throwing.h"

namespace {

// The block throws in its ninth forward of training, or in the backward of that.
int train(int stages, const std::string& schedule, int block, const std::string& place,
          const std::string& backend) {
  trireme::TrainerOptions options;
  options.strategy = "pipeline";
  options.batch = 16;
  options.epochs = 20;
  options.division.mesh.pipeline = stages;
  options.division.pipeline = {schedule, 4, 0, "parameters"};
  trireme::Job job;
  job.name = "stages";
  job.model = trireme::model_factory<trireme::tests::Throwing>(block, 9, place);
  job.optimizer = trireme::SGD{.lr = 0.1};
  const auto data = std::make_shared<trireme::TensorSource>(
      at::randn({96, 5}, at::detail::createCPUGenerator(1)),
      at::randint(3, {96}, at::detail::createCPUGenerator(2), at::kLong));
  trireme::WorldOptions carried;
  carried.backend = backend;
  trireme::World world = trireme::World::join(carried);
  trireme::Trainer(world, options).fit(job, data, nullptr);
  world.leave();
  return trireme::kExitOk;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return trireme::kExitUsage;
  try {
    return train(std::atoi(argv[1]), argv[2], std::atoi(argv[3]), argv[4], argv[5]);
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return trireme::exit_code_of(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
