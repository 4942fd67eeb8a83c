// A programme that has the names of examples/own_model/own_model.cc in itself, instead of in a
// shared object. `registered_names CONFIG.yaml [key=value...]` trains, and model.library may name
// it (test_own_model.py).
#include <trireme/run/config.h>
#include <trireme/run/training.h>
#include <trireme/train/trainer.h>
#include <iostream>

// Two targets cannot batch one source (trireme_quick_to_build).
#include "../../examples/own_model/own_model.cc"

int main(int argc, char** argv) {
  trireme::run_as_worker(argc, argv);
  const trireme::Config config = trireme::load_options(argv[1], {argv + 2, argv + argc});
  const auto [options, job, train, test] = trireme::training_of(config);
  auto world = trireme::World::join(config.world);
  const trireme::Report report = trireme::Trainer(world, options).fit(job, train, test);
  if (world.rank() == 0)
    std::cout << trireme::Json{{"parameters", report.parameters_sha256},
                               {"loss", report.eval->loss}}
                     .dump()
              << std::endl;
  world.leave();
  return 0;
}
