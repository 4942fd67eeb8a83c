// The subcommands of `trireme-bench`: what each rank does in a measurement of `trireme bench`.
#pragma once
#include <trireme/cli/bench_mesh.h>
#include <trireme/cli/command_line.h>
#include <trireme/comm/world.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme::cli {

struct RankArguments {
  std::string model = "mlp", op = "all_reduce", bytes = "25MB", algorithm = "auto",
              path = "threads", output, compression = "none", table, library;
  int64_t batch = 0, steps = 50, rows = 0, check_every = 64;
  int workers = 2, compression_rank = 2;
  bool json = false, tune = false, shared_tensors = false, written = false;
  BenchMesh mesh;
};

WorldOptions world_options_of(const RankArguments& arguments);
int threads_of(const RankArguments& arguments);      // The number of ranks in this process.
void require_steps(const RankArguments& arguments);  // Throws Error(invalid_argument).
double median(std::vector<double> values);           // Needs at least one value.

// COLLECTIVE. Runs `rank_body` once for each rank: in threads of this process, or on the calling
// thread if the ranks are processes. Returns the measurements of this worker's first rank.
std::vector<double> on_every_rank(
    World& world, int threads,
    const std::function<std::vector<double>(std::shared_ptr<Group>)>& rank_body);
// The same with the groups of a mesh.
std::vector<double> on_every_rank_of_mesh(
    World& world, int threads, const plan::Mesh& mesh,
    const std::function<std::vector<double>(std::shared_ptr<Group>, const MeshRank&)>& rank_body);

void add_bench_ranks(Command app);  // The subcommands.
int bench_step(const RankArguments& arguments);
int bench_first_step(const RankArguments& arguments);
int bench_collectives(const RankArguments& arguments);
int tune_collectives(const RankArguments& arguments);
int bench_parameter_server(const RankArguments& arguments);
int bench_tables(const RankArguments& arguments);

}  // namespace trireme::cli
