// `trireme launch`: starts any programme as workers of one job.
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/node_options.h>

namespace trireme::cli {
namespace {

struct LaunchArguments {
  int workers = 2;
  int threads = 0;
  bool no_prefix = false;
  std::vector<std::string> program;
  NodeOptions node;
};

int launch_job(const LaunchArguments& arguments) {
  if (arguments.workers < 1)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--workers {} is below 1", arguments.workers), "--workers 1 or more");
  if (arguments.program.empty())
    throw Error(ErrorCode::invalid_argument, "cli", "no programme to launch is named",
                "trireme launch --workers 2 -- PROGRAM ARGUMENTS");
  launch::SupervisorOptions options;
  arguments.node.apply(options);
  options.workers = arguments.workers;
  options.threads_per_worker = arguments.threads;
  options.prefix_output = !arguments.no_prefix;
  options.command = arguments.program;
  return launch::supervise(options);
}

}  // namespace

void add_launch(Command app) {
  auto arguments = std::make_shared<LaunchArguments>();
  Command command =
      app.subcommand("launch", "Start a programme as the workers of one job, and watch them");
  command.option("--workers", arguments->workers, "Worker processes of the whole job (default 2)");
  command.option(
      "--threads", arguments->threads,
      "OMP_NUM_THREADS and MKL_NUM_THREADS of each worker (default: cores / workers of this host)");
  command.flag("--no-prefix", arguments->no_prefix, "Pass output on without the worker's number");
  arguments->node.add_to(command);
  command.option("program", arguments->program, "Programme and arguments, after --");
  command.footer("Example: trireme launch --workers 2 -- ./my_training --epochs 3");
  command.action([arguments] { return launch_job(*arguments); });
}

}  // namespace trireme::cli
