// The arguments of `trireme bench`.
#pragma once
#include <trireme/cli/bench_mesh.h>
#include <trireme/cli/node_options.h>
#include <trireme/config/given.h>
#include <cstdint>
#include <string>

namespace trireme::cli {

struct BenchArguments {
  std::string model = "mlp", op, bytes = "25MB", algorithm = "auto", path = "threads", output,
              compression = "none", library;
  int64_t batch = 0, steps = 50, model_mb = 100, check_every = 64;
  int workers = 2, repeats = 5, compression_rank = 2;
  bool json = false, tune = false, shared_tensors = false, written = false;
  BenchMesh mesh;
  NodeOptions node;
};

struct ServersArguments {
  std::string bytes, path = "auto", table;  // The parameters, or a table.
  int64_t steps = 1000, rows = 4096;
  int workers = 1;
  bool json = false;
};

struct RequestsArguments {
  std::string bytes = "4KB", path = "auto";
  int64_t steps = 5000;
  int threads = 1, server_threads = 2;
  bool json = false;
};

// `trireme bench input`: how fast the data of a configuration comes, without a model.
struct InputArguments {
  config::Source source;
  int64_t seconds = 5;
  bool json = false;
};
// In trireme-bench.
int bench_input(const InputArguments& arguments);

// Refuses arguments that no measurement can have: fewer than one worker, an unknown path, or
// threads on several hosts.
void check_ranks(const BenchArguments& arguments);
// Starts the job of one model `repeats` times, one after the other. Prints how long each start
// took up to the end of the first step.
int bench_startup(const BenchArguments& arguments);
// Saves and loads tensors of model_mb, and optimizer state of twice that size, in a new folder
// under `output`. Prints the cost of both.
int bench_checkpoint(const BenchArguments& arguments);

// Starts a server's process and measures round trips of `bytes` to it. Prints their times.
int bench_requests(const RequestsArguments& arguments);

}  // namespace trireme::cli
