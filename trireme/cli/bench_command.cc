// `trireme bench`: measures this machine. The ranks are the programme `trireme-bench`: the
// supervisor starts its processes, and threads run inside one.
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/units.h>
#include <trireme/cli/bench_arguments.h>
#include <trireme/cli/bench_paths.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/config_keys.h>
#include <trireme/cli/output_file.h>
#include <trireme/cli/table_size.h>
#include <trireme/config/names.h>
#include <trireme/launch/supervisor.h>
#include <trireme/net/requests/message.h>
#include <trireme/plan/collective_cost.h>
#include <trireme/plan/collective_table.h>
#include <trireme/plan/compression_plan.h>
#include <trireme/run/config.h>
#include <trireme/run/dataset.h>
#include <trireme/run/model_library.h>
#include <trireme/run/places.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace trireme::cli {
namespace {

constexpr const char* kModels = "tiny, mlp, mlpbig, cnn, gpt, resnet18 or another model.name";

[[noreturn]] void become_mpirun(int workers, const std::vector<std::string>& words) {
  std::vector<std::string> command{"mpirun", "-n", std::to_string(workers), "--oversubscribe"};
  // A user who measures as root has decided so.
  if (geteuid() == 0) command.push_back("--allow-run-as-root");
  command.insert(command.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  throw Error(ErrorCode::not_found, "cli",
              fmt::format("--path mpi starts its ranks by mpirun, which cannot be run: {}",
                          std::strerror(errno)),
              "install openmpi-bin");
}

// Runs the subcommand of `trireme-bench` in `workers` processes, or in one process with threads.
int measure(const BenchArguments& arguments, std::vector<std::string> words) {
  check_ranks(arguments);
  if (arguments.batch < 0)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--batch {} is below 0", arguments.batch),
                "samples per rank, or 0 for the model's own");
  const BenchPath& path = find_bench_path(arguments.path);
  words.insert(words.end(), {"--workers", std::to_string(arguments.workers), "--path",
                             arguments.path, "--steps", std::to_string(arguments.steps)});
  if (arguments.json) words.push_back("--json");
  // Each rank has one thread, as in the measurements of peers.
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) setenv(name, "1", 1);
  if (path.in_threads || (arguments.workers == 1 && arguments.node.nodes == 1))
    become("trireme-bench", arguments.library, std::move(words));
  const std::vector<std::string> command = torch_command("trireme-bench", arguments.library);
  words.insert(words.begin(), command.begin(), command.end());
  if (path.backend == "mpi") become_mpirun(arguments.workers, words);
  launch::SupervisorOptions options;
  arguments.node.apply(options);
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
                fmt::format("--algorithm {}: path {} has an algorithm of its own",
                            arguments.algorithm, arguments.path),
                fmt::format("--path {}, or --algorithm auto",
                            fmt::join(plan::paths_with_plans(), " or ")));
  plan::plan_collective(plan::collective_from_string(arguments.op), algorithm,
                        std::max(1, arguments.workers));
}

// The table is merged into the rows that the file already has. The file and its folder are
// therefore checked before anything is measured.
void check_tuning(const BenchArguments& arguments) {
  if (!runs_plans(arguments.path))
    throw Error(ErrorCode::unsupported, "cli",
                fmt::format("--tune: path {} has an algorithm of its own", arguments.path),
                fmt::format("--path {}", fmt::join(plan::paths_with_plans(), " or ")));
  require_place_of("--output", arguments.output);
  if (arguments.output.empty()) return;
  require_writable_folder(std::filesystem::path(arguments.output).parent_path());
  if (path_exists(arguments.output))
    plan::CollectiveTable::parse(read_file(arguments.output), arguments.output);
}

void check_shared_tensors(const BenchArguments& arguments) {
  if (!arguments.shared_tensors) return;
  const auto refuse = [](const std::string& what, const std::string& remedy) {
    throw Error(ErrorCode::unsupported, "cli", "--shared-tensors: " + what, remedy);
  };
  if (arguments.tune) refuse("a table is for ordinary tensors", "no --tune");
  if (arguments.op != "all_reduce")
    refuse(fmt::format("{} does not use them", arguments.op), "--op all_reduce");
  if (!find_bench_path(arguments.path).shares_memory || arguments.node.nodes > 1)
    refuse(fmt::format("ranks connected by {}{} share no memory", arguments.path,
                       arguments.node.nodes > 1 ? " across hosts" : ""),
           fmt::format("one host, --path {}", bench_path_names(/*sharing_memory=*/true)));
}

int bench_collectives(BenchArguments arguments) {
  if (!arguments.op.empty()) plan::collective_from_string(arguments.op);
  if (arguments.op.empty() && !arguments.tune) arguments.op = "all_reduce";
  find_bench_path(arguments.path);
  check_shared_tensors(arguments);
  if (arguments.tune) {
    check_tuning(arguments);
    return measure(arguments,
                   {"collectives", "--tune", "--op", arguments.op, "--output", arguments.output});
  }
  if (!arguments.output.empty())
    throw Error(ErrorCode::invalid_argument, "cli", "--output is for the table of --tune",
                "--tune, or no --output");
  check_algorithm(arguments);
  parse_bytes(arguments.bytes);
  std::vector<std::string> words{"collectives",   "--op",        arguments.op,       "--bytes",
                                 arguments.bytes, "--algorithm", arguments.algorithm};
  if (arguments.shared_tensors) words.push_back("--shared-tensors");
  return measure(arguments, std::move(words));
}

int bench_step(const BenchArguments& arguments) {
  if (!arguments.library.empty()) use_model_library(arguments.library);
  models::resolve({.name = arguments.model});  // Refuses an unknown model here, once.
  const std::vector<std::string> known = config::with("none", plan::compressions());
  if (std::find(known.begin(), known.end(), arguments.compression) == known.end())
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--compression {} is not known", arguments.compression),
                fmt::format("{}", fmt::join(known, ", ")));
  if (arguments.compression_rank < 1)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--compression-rank {} is below 1", arguments.compression_rank),
                "1 or more");
  const plan::DivisionOptions division = arguments.mesh.division();
  if (arguments.mesh.is_wanted()) plan::mesh_of(division.mesh, std::max(1, arguments.workers));
  arguments.mesh.memory();
  std::vector<std::string> words{"step",
                                 "--model",
                                 arguments.model,
                                 "--batch",
                                 std::to_string(arguments.batch),
                                 "--compression",
                                 arguments.compression,
                                 "--compression-rank",
                                 std::to_string(arguments.compression_rank)};
  for (std::string& word : arguments.mesh.words()) words.push_back(std::move(word));
  if (arguments.written && (arguments.path == "threads" || arguments.mesh.is_wanted() ||
                            arguments.mesh.has_memory_policy()))
    throw Error(ErrorCode::invalid_argument, "cli",
                "--written measures a loop with one replica in each process, without a mesh or a "
                "memory policy",
                "--written with --path shm, tcp or another one between processes");
  if (arguments.check_every < 0 ||
      (arguments.check_every != BenchArguments().check_every && !arguments.written))
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--check-every {}{}", arguments.check_every,
                            arguments.written ? "" : " without --written"),
                "--written --check-every N, where 0 compares nothing");
  if (arguments.written)
    words.insert(words.end(),
                 {"--written", "--check-every", std::to_string(arguments.check_every)});
  if (!arguments.library.empty()) words.insert(words.end(), {"--library", arguments.library});
  return measure(arguments, std::move(words));
}

void add_common(Command command, const std::shared_ptr<BenchArguments>& arguments) {
  command.option("--workers", arguments->workers, "Ranks (default 2)");
  command.option("--path", arguments->path,
                 fmt::format("The backend that carries the bytes: {}", bench_path_names()));
  command.flag("--json", arguments->json, "Print one JSON object");
}

void add_repetitions(Command command, const std::shared_ptr<BenchArguments>& arguments) {
  command.option("--steps", arguments->steps, "Number of measured repetitions (default 50)");
  arguments->node.add_to(command);
}

int bench_ps(const ServersArguments& arguments) {
  net::request_path_from_string(arguments.path);
  const bool has_table = !arguments.table.empty();
  if (has_table && !arguments.bytes.empty())
    throw Error(ErrorCode::invalid_argument, "cli", "--bytes and --table are two measurements",
                "one of them");
  const std::string bytes = arguments.bytes.empty() ? "4KB" : arguments.bytes;
  if (has_table)
    table_size_of(arguments.table, arguments.rows);
  else if (parse_bytes(bytes) < 4)
    throw Error(ErrorCode::invalid_argument, "cli", fmt::format("--bytes {}", bytes),
                "4 or more: float32 has 4 bytes");
  require_workers(arguments.workers);
  if (!has_table && arguments.workers != 1)
    throw Error(ErrorCode::unsupported, "cli",
                fmt::format("--workers {} without --table", arguments.workers), "--workers 1");
  std::vector<std::string> words{"ps", "--path", arguments.path, "--steps",
                                 std::to_string(arguments.steps)};
  if (has_table)
    words.insert(words.end(),
                 {"--table", arguments.table, "--rows", std::to_string(arguments.rows),
                  "--workers", std::to_string(arguments.workers)});
  else
    words.insert(words.end(), {"--bytes", bytes});
  if (arguments.json) words.push_back("--json");
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) setenv(name, "1", 1);
  become("trireme-bench", /*library=*/"", std::move(words));
}

void add_bench_ps(Command bench) {
  auto arguments = std::make_shared<ServersArguments>();
  Command servers =
      bench.subcommand("ps", "Measure pushes and pulls between a worker and a parameter server");
  servers.option("--bytes", arguments->bytes, "Size of the parameters (default 4KB)");
  servers.option("--table", arguments->table,
                 "Measure an embedding table of ROWSxWIDTH instead, such as 1000000x64");
  servers.option("--rows", arguments->rows, "Rows of the table in a step (default 4096)");
  servers.option("--workers", arguments->workers,
                 "With --table: workers that take steps together (default 1)");
  servers.option("--path", arguments->path, "tcp, shm, or auto for the faster one");
  servers.option("--steps", arguments->steps, "Pushes with their pulls (default 1000)");
  servers.flag("--json", arguments->json, "Print one JSON object");
  servers.examples({"trireme bench ps --bytes 25MB --path tcp --json",
                    "trireme bench ps --table 1000000x64 --rows 4096 --steps 200"});
  servers.action([arguments] { return bench_ps(*arguments); });
}

void add_bench_requests(Command bench) {
  auto arguments = std::make_shared<RequestsArguments>();
  Command requests = bench.subcommand(
      "requests", "Measure requests to a server and back, beside a bare TCP connection");
  requests.option("--bytes", arguments->bytes, "Size of the tensor, there and back (default 4KB)");
  requests.option("--path", arguments->path, "tcp, shm, or auto for the faster one");
  requests.option("--threads", arguments->threads, "Threads that call at once (default 1)");
  requests.option("--server-threads", arguments->server_threads,
                  "Threads of the server (default 2)");
  requests.option("--steps", arguments->steps, "Round trips of each thread (default 5000)");
  requests.flag("--json", arguments->json, "Print one JSON object");
  requests.examples({"trireme bench requests --bytes 4KB --path shm --json"});
  requests.action([arguments] { return bench_requests(*arguments); });
}

int bench_input_of(const InputArguments& arguments) {
  if (arguments.seconds < 1)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--seconds {} is below 1", arguments.seconds), "--seconds 5");
  const Config config = load_config(arguments.source);
  read_data(config);  // Names what is wrong before LibTorch is loaded.
  std::vector<std::string> words{"input"};
  if (!arguments.source.file.empty()) words.push_back(arguments.source.file.string());
  for (const std::string& setting : arguments.source.set)
    words.insert(words.end(), {"--set", setting});
  words.insert(words.end(), {"--seconds", std::to_string(arguments.seconds)});
  if (arguments.json) words.push_back("--json");
  become("trireme-bench", config.library, std::move(words));
}

void add_bench_input(Command bench) {
  auto arguments = std::make_shared<InputArguments>();
  Command input = bench.subcommand(
      "input", "Measure how fast the data of a configuration comes, without a model");
  input.option("config", arguments->source.file, "YAML file; without one the defaults hold");
  input.repeated("--set", arguments->source.set, "key=value, after the file; may be repeated");
  input.settings(key_meant_by);
  input.option("--seconds", arguments->seconds, "How long to measure (default 5)");
  input.flag("--json", arguments->json, "Print one JSON object");
  input.examples({"trireme bench input examples/digits.yaml --set data.threads=2 --json"});
  input.action([arguments] { return bench_input_of(*arguments); });
}

void add_bench_step(Command bench, const std::shared_ptr<BenchArguments>& arguments) {
  Command step = bench.subcommand("step", "Measure training steps of a model on random data");
  step.option("--model", arguments->model, kModels);
  step.option("--library", arguments->library,
              "A shared object or a programme that registers the model (docs/models.md)");
  step.option("--batch", arguments->batch,
              "Samples per rank, or per replica of a mesh (default: a size for each model)");
  step.option("--compression", arguments->compression,
              "How gradients are made smaller (docs/compression.md; default: none)");
  step.option("--compression-rank", arguments->compression_rank,
              "powersgd: columns of each factor (default 2)");
  step.flag("--written", arguments->written,
            "Measure a loop as it stands (Distributed<SGD>) instead of DataParallel");
  step.option("--check-every", arguments->check_every,
              "With --written: the ranks compare their parameters in each such number of steps "
              "(default 64; 0: never)");
  arguments->mesh.add_to(step, /*described=*/true);
  add_common(step, arguments);
  add_repetitions(step, arguments);
  step.examples({"trireme bench step --model mlp --workers 2 --path gloo --json"});
  step.action([arguments] { return bench_step(*arguments); });
}

void add_bench_collectives(Command bench, const std::shared_ptr<BenchArguments>& arguments) {
  Command collectives = bench.subcommand(
      "collectives", "Measure a collective operation, or find the fastest algorithms");
  collectives.option("--op", arguments->op,
                     "all_reduce (default), reduce_scatter, all_gather, broadcast or all_to_all; "
                     "with --tune all of them, unless one is given");
  collectives.option("--bytes", arguments->bytes, "Size of the tensor, e.g. 4KB, 25MB");
  collectives.option("--algorithm", arguments->algorithm,
                     fmt::format("auto, or an algorithm of docs/collectives.md (with --path {})",
                                 fmt::join(plan::paths_with_plans(), " or ")));
  collectives.flag(
      "--tune", arguments->tune,
      "Time all algorithms at many sizes, and choose those that `auto` takes (comm.table)");
  collectives.option("--output", arguments->output,
                     "With --tune: add the rows of the table to this file");
  collectives.flag("--shared-tensors", arguments->shared_tensors,
                   fmt::format("Reduce tensors of Group::shared_tensor() (with --path {})",
                               bench_path_names(/*sharing_memory=*/true)));
  add_common(collectives, arguments);
  add_repetitions(collectives, arguments);
  collectives.examples(
      {"trireme bench collectives --op all_reduce --bytes 25MB --workers 2 --path threads --json",
       "trireme bench collectives --tune --workers 4 --output table.json"});
  collectives.action([arguments] { return bench_collectives(*arguments); });
}

void add_bench_startup(Command bench, const std::shared_ptr<BenchArguments>& arguments) {
  Command startup = bench.subcommand(
      "startup", "Measure the time from the launch to the end of the first step, on random data");
  startup.option("--model", arguments->model, kModels);
  startup.option("--repeats", arguments->repeats,
                 "Number of starts, one after the other (default 5)");
  add_common(startup, arguments);
  startup.examples({"trireme bench startup --model mlp --workers 2 --path shm --json"});
  startup.action([arguments] { return bench_startup(*arguments); });
}

void add_bench_checkpoint(Command bench, const std::shared_ptr<BenchArguments>& arguments) {
  Command checkpoint = bench.subcommand(
      "checkpoint", "Measure the cost of a save during training, and the time of loading");
  checkpoint.option("--model-mb", arguments->model_mb,
                    "Size of the parameters in MB; the optimizer has twice as much (default 100)");
  checkpoint.option("--repeats", arguments->repeats, "Number of saves of each kind (default 5)");
  checkpoint.option("--folder", arguments->output,
                    "Folder on the disk to measure (default: the one for temporary files)");
  checkpoint.flag("--json", arguments->json, "Print JSON");
  checkpoint.examples({"trireme bench checkpoint --model-mb 100 --folder runs"});
  checkpoint.action([arguments] { return bench_checkpoint(*arguments); });
}

}  // namespace

void check_ranks(const BenchArguments& arguments) {
  require_workers(arguments.workers);
  const BenchPath& path = find_bench_path(arguments.path);
  if (arguments.node.nodes > 1 && (path.in_threads || path.backend == "mpi"))
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--nodes {}: path {} does not start ranks on several hosts",
                            arguments.node.nodes, arguments.path),
                "--path tcp, shm or gloo");
}

void add_bench(Command app) {
  Command bench = app.subcommand("bench", "Measure the speed of this machine");
  bench.examples({"trireme bench step --model mlp --workers 2",
                  "trireme bench collectives --op all_reduce --bytes 25MB"});
  const auto arguments = std::make_shared<BenchArguments>();
  add_bench_step(bench, arguments);
  add_bench_input(bench);
  add_bench_collectives(bench, arguments);
  add_bench_startup(bench, arguments);
  add_bench_checkpoint(bench, arguments);
  add_bench_requests(bench);
  add_bench_ps(bench);
}

}  // namespace trireme::cli
