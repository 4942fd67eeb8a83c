// `trireme bench`: measures this machine. Processes are started through the supervisor, threads inside the worker.
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/units.h>
#include <trireme/cli/bench_paths.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/paths.h>
#include <trireme/launch/supervisor.h>
#include <trireme/plan/collective_cost.h>
#include <trireme/plan/collective_table.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace trireme::cli {
namespace {

struct BenchArguments {
  std::string model = "mlp", op, bytes = "25MB", algorithm = "auto", path = "threads", output;
  int64_t batch = 0, steps = 50;
  int workers = 2;
  bool json = false, tune = false;
};

[[noreturn]] void become_mpirun(int workers, const std::vector<std::string>& words) {
  std::vector<std::string> command{"mpirun", "-n", std::to_string(workers), "--oversubscribe"};
  if (geteuid() == 0) command.push_back("--allow-run-as-root");  // Who measures as root has decided so.
  command.insert(command.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  throw Error(ErrorCode::not_found, "cli",
              fmt::format("--path mpi starts its ranks by mpirun, which cannot be run: {}", std::strerror(errno)), "install openmpi-bin");
}

// The worker's measuring subcommand under `workers` processes, or in one process with threads.
int measure(const BenchArguments& arguments, std::vector<std::string> words) {
  if (arguments.workers < 1)
    throw Error(ErrorCode::invalid_argument, "cli", fmt::format("--workers {} is below 1", arguments.workers), "--workers 1 or more");
  if (arguments.batch < 0)
    throw Error(ErrorCode::invalid_argument, "cli", fmt::format("--batch {} is below 0", arguments.batch),
                "samples per rank, or 0 for the model's own");
  const BenchPath& path = find_bench_path(arguments.path);
  words.insert(words.end(),
               {"--workers", std::to_string(arguments.workers), "--path", arguments.path, "--steps", std::to_string(arguments.steps)});
  if (arguments.json) words.push_back("--json");
  // One thread a rank, as peers are measured.
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) setenv(name, "1", 1);
  if (path.in_threads || arguments.workers == 1) return become_worker(std::move(words));
  words.insert(words.begin(), sibling_program("trireme-worker").string());
  if (path.backend == "mpi") become_mpirun(arguments.workers, words);
  launch::SupervisorOptions options;
  options.workers = arguments.workers;
  options.prefix_output = false;
  options.command = std::move(words);
  return launch::supervise(options);
}

bool runs_plans(std::string_view path) {
  const auto known = plan::paths_with_plans();
  return std::find(known.begin(), known.end(), path) != known.end();
}

void check_algorithm(const BenchArguments& arguments) {
  if (arguments.algorithm == "auto") return;
  const plan::Algorithm algorithm = plan::algorithm_from_string(arguments.algorithm);
  if (!runs_plans(arguments.path))
    throw Error(ErrorCode::unsupported, "cli",
                fmt::format("--algorithm {}: path {} has an algorithm of its own", arguments.algorithm, arguments.path),
                fmt::format("--path {}, or --algorithm auto", fmt::join(plan::paths_with_plans(), " or ")));
  plan::plan_collective(plan::collective_from_string(arguments.op), algorithm, std::max(1, arguments.workers));
}

// A table is written beside the rows that it has already: they and the folder must be all right before anything is measured.
void check_tuning(const BenchArguments& arguments) {
  if (!runs_plans(arguments.path))
    throw Error(ErrorCode::unsupported, "cli", fmt::format("--tune: path {} has an algorithm of its own", arguments.path),
                fmt::format("--path {}", fmt::join(plan::paths_with_plans(), " or ")));
  if (arguments.output.empty()) return;
  require_writable_folder(std::filesystem::absolute(arguments.output).parent_path());
  if (std::filesystem::exists(arguments.output)) plan::CollectiveTable::parse(read_file(arguments.output), arguments.output);
}

int bench_collectives(BenchArguments arguments) {
  if (!arguments.op.empty()) plan::collective_from_string(arguments.op);
  find_bench_path(arguments.path);
  if (arguments.tune) {
    check_tuning(arguments);
    return measure(arguments, {"bench-collectives", "--tune", "--op", arguments.op, "--output", arguments.output});
  }
  if (!arguments.output.empty())
    throw Error(ErrorCode::invalid_argument, "cli", "--output is for the table of --tune", "--tune, or no --output");
  if (arguments.op.empty()) arguments.op = "all_reduce";
  check_algorithm(arguments);
  parse_bytes(arguments.bytes);
  return measure(arguments, {"bench-collectives", "--op", arguments.op, "--bytes", arguments.bytes, "--algorithm", arguments.algorithm});
}

void add_common(CLI::App* command, const std::shared_ptr<BenchArguments>& arguments) {
  command->add_option("--workers", arguments->workers, "Ranks (default 2)");
  command->add_option("--path", arguments->path, fmt::format("What carries the bytes: {}", bench_path_names()));
  command->add_option("--steps", arguments->steps, "Measured repetitions (default 50)");
  command->add_flag("--json", arguments->json, "One JSON object");
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);
  auto arguments = std::make_shared<BenchArguments>();

  CLI::App* step = bench->add_subcommand("step", "Training steps of a model on random data");
  step->add_option("--model", arguments->model, "tiny, mlp, mlpbig, cnn or gpt");
  step->add_option("--batch", arguments->batch, "Samples per rank (default: the model's in the suite)");
  add_common(step, arguments);
  step->footer("Example: trireme bench step --model mlp --workers 2 --path gloo --json");
  step->callback([arguments, &action] {
    action = [arguments] {
      models::resolve({.name = arguments->model});  // Refuses an unknown model here, once.
      return measure(*arguments, {"bench-step", "--model", arguments->model, "--batch", std::to_string(arguments->batch)});
    };
  });

  CLI::App* collectives = bench->add_subcommand("collectives", "One collective operation, or with --tune the fastest algorithms");
  collectives->add_option("--op", arguments->op,
                          "all_reduce (default), reduce_scatter, all_gather or broadcast; with --tune all of them, unless one is given");
  collectives->add_option("--bytes", arguments->bytes, "Size of the tensor, e.g. 4KB, 25MB");
  collectives->add_option("--algorithm", arguments->algorithm,
                          fmt::format("auto, or one of docs/collectives.md, between {}", fmt::join(plan::paths_with_plans(), " or ")));
  collectives->add_flag("--tune", arguments->tune, "Time all algorithms at many sizes, and say which `auto` should take (comm.table)");
  collectives->add_option("--output", arguments->output, "With --tune: write the table to this file, beside other rows that are there");
  add_common(collectives, arguments);
  collectives->footer(
      "Example: trireme bench collectives --op all_reduce --bytes 25MB --workers 2 --path threads --json\n"
      "         trireme bench collectives --tune --workers 4 --output table.json");
  collectives->callback([arguments, &action] { action = [arguments] { return bench_collectives(*arguments); }; });
}

}  // namespace trireme::cli
