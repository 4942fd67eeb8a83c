// `trireme bench startup`: measures the time from the launch of a job to the end of its first
// step.
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/base/unix_time.h>
#include <trireme/cli/bench_arguments.h>
#include <trireme/cli/bench_paths.h>
#include <trireme/launch/supervisor.h>
#include <trireme/models/shapes.h>
#include <trireme/run/places.h>
#include <algorithm>
#include <optional>
#include <vector>

namespace trireme::cli {
namespace {

void check_startup(const BenchArguments& arguments) {
  models::resolve({.name = arguments.model});
  check_ranks(arguments);
  if (arguments.repeats < 1)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--repeats {} is below 1", arguments.repeats), "--repeats 1 or more");
  if (find_bench_path(arguments.path).backend == "mpi")
    throw Error(ErrorCode::unsupported, "cli",
                "--path mpi: mpirun starts those ranks, and its own start would be measured",
                "--path threads, shm, tcp or gloo");
}

launch::SupervisorOptions job_of(const BenchArguments& arguments) {
  launch::SupervisorOptions options;
  options.workers = find_bench_path(arguments.path).in_threads ? 1 : arguments.workers;
  options.threads_per_worker = 1;  // The same as in the measurements of peers.
  options.prefix_output = false;
  options.command = torch_command("trireme-bench", /*library=*/"");
  for (const std::string& word :
       {std::string("first-step"), std::string("--model"), arguments.model,
        std::string("--workers"), std::to_string(arguments.workers), std::string("--path"),
        arguments.path})
    options.command.push_back(word);
  return options;
}

void print(const BenchArguments& arguments, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const size_t n = seconds.size();
  const double median = (seconds[(n - 1) / 2] + seconds[n / 2]) / 2;
  const Json json = {{"model", arguments.model},
                     {"path", arguments.path},
                     {"workers", arguments.workers},
                     {"repeats", arguments.repeats},
                     {"steps", 1},
                     {"median_ms", median * 1e3},
                     {"min_ms", seconds[0] * 1e3}};
  if (arguments.json)
    fmt::print("{}\n", json.dump());
  else
    fmt::print(
        "{} x{} over {}: {:.0f} ms from the launch to the end of the first step (best {:.0f}, {} "
        "starts)\n",
        arguments.model, arguments.workers, arguments.path, json["median_ms"].get<double>(),
        json["min_ms"].get<double>(), arguments.repeats);
}

}  // namespace

int bench_startup(const BenchArguments& arguments) {
  check_startup(arguments);
  launch::SupervisorOptions job = job_of(arguments);
  std::vector<double> seconds;
  for (int i = 0; i < arguments.repeats; ++i) {
    std::optional<double> finished;
    job.on_line = [&finished](int, const std::string& line) {
      const Json said = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!said.is_object() || !said.contains("first_step_at")) return false;
      finished = said["first_step_at"].get<double>();
      return true;
    };
    const double launched = unix_seconds();
    if (const int code = launch::supervise(job); code != 0) return code;
    if (!finished)
      throw Error(ErrorCode::internal, "cli", "the job ended without a first step", "");
    seconds.push_back(*finished - launched);
  }
  print(arguments, std::move(seconds));
  return 0;
}

}  // namespace trireme::cli
