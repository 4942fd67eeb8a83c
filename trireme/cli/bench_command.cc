// `trireme bench`: measures this machine. Processes are started through the supervisor, threads inside the worker.
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/paths.h>
#include <trireme/launch/supervisor.h>
#include <algorithm>
#include <cstdlib>

namespace trireme::cli {
namespace {

struct BenchArguments {
  std::string model = "mlp", op = "all_reduce", bytes = "25MB", algorithm = "auto", path = "threads";
  int64_t batch = 0, steps = 50;
  int workers = 2;
  bool json = false;
};

// The worker's measuring subcommand under `workers` processes (gloo) or in one process with threads.
int measure(const BenchArguments& arguments, std::vector<std::string> words) {
  if (arguments.workers < 1)
    throw Error(ErrorCode::invalid_argument, "cli", fmt::format("--workers {} is below 1", arguments.workers), "--workers 1 or more");
  if (arguments.batch < 0)
    throw Error(ErrorCode::invalid_argument, "cli", fmt::format("--batch {} is below 0", arguments.batch),
                "samples per rank, or 0 for the model's own");
  if (arguments.path != "threads" && arguments.path != "gloo")
    throw Error(ErrorCode::unsupported, "cli", fmt::format("--path {} is not in this version", arguments.path), "threads or gloo");
  words.insert(words.end(),
               {"--workers", std::to_string(arguments.workers), "--path", arguments.path, "--steps", std::to_string(arguments.steps)});
  if (arguments.json) words.push_back("--json");
  // One thread a rank, as peers are measured.
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) setenv(name, "1", 1);
  if (arguments.path == "threads" || arguments.workers == 1) return become_worker(std::move(words));
  launch::SupervisorOptions options;
  options.workers = arguments.workers;
  options.prefix_output = false;
  words.insert(words.begin(), sibling_program("trireme-worker").string());
  options.command = std::move(words);
  return launch::supervise(options);
}

void add_common(CLI::App* command, const std::shared_ptr<BenchArguments>& arguments) {
  command->add_option("--workers", arguments->workers, "Ranks (default 2)");
  command->add_option("--path", arguments->path, "What carries the bytes: threads or gloo");
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

  CLI::App* collectives = bench->add_subcommand("collectives", "One collective operation");
  collectives->add_option("--op", arguments->op, "all_reduce, reduce_scatter, all_gather or broadcast");
  collectives->add_option("--bytes", arguments->bytes, "Size of the tensor, e.g. 4KB, 25MB");
  collectives->add_option("--algorithm", arguments->algorithm, "Between threads: auto, naive, direct or ring");
  add_common(collectives, arguments);
  collectives->footer("Example: trireme bench collectives --op all_reduce --bytes 25MB --workers 2 --path threads --json");
  collectives->callback([arguments, &action] {
    action = [arguments] {
      static constexpr std::string_view kOps[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"};
      if (std::find(std::begin(kOps), std::end(kOps), arguments->op) == std::end(kOps))
        throw Error(ErrorCode::invalid_argument, "cli", fmt::format("--op {} is not known", arguments->op),
                    fmt::format("{}", fmt::join(kOps, ", ")));
      return measure(*arguments,
                     {"bench-collectives", "--op", arguments->op, "--bytes", arguments->bytes, "--algorithm", arguments->algorithm});
    };
  });
}

}  // namespace trireme::cli
