// What `trireme bench` was asked for.
#pragma once
#include <trireme/cli/node_options.h>
#include <cstdint>
#include <string>

namespace trireme::cli {

struct BenchArguments {
  std::string model = "mlp", op, bytes = "25MB", algorithm = "auto", path = "threads", output,
              compression = "none";
  int64_t batch = 0, steps = 50, model_mb = 100;
  int workers = 2, repeats = 5, compression_rank = 2;
  bool json = false, tune = false, shared_tensors = false;
  NodeOptions node;
};

// Refuses what no measurement could do: a number of workers below 1, an unknown path, threads on
// several hosts.
void check_ranks(const BenchArguments& arguments);
// Starts the job of one model so often, one after the other, and prints how long each took to its
// first finished step.
int bench_startup(const BenchArguments& arguments);
// Saves and loads tensors of model_mb, and twice as much of optimizer state, in a new folder under
// `output`; prints what each costs.
int bench_checkpoint(const BenchArguments& arguments);

}  // namespace trireme::cli
