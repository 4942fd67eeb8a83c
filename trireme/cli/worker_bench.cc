#include <fmt/format.h>
#include <torch/torch.h>

#include <trireme/base/error.h>
#include <trireme/cli/bench_paths.h>
#include <trireme/cli/worker_bench.h>
#include <trireme/cli/worker_commands.h>
#include <trireme/models/build.h>
#include <trireme/monitor/resources.h>
#include <trireme/parallel/data_parallel.h>
#include <algorithm>
#include <chrono>
#include <thread>

namespace trireme::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

}  // namespace

WorldOptions world_options_of(const WorkerBenchArguments& arguments) {
  WorldOptions options;
  options.backend = find_bench_path(arguments.path).backend;
  return options;
}

int threads_of(const WorkerBenchArguments& arguments) { return find_bench_path(arguments.path).in_threads ? arguments.workers : 1; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Runs `rank_body` once a rank: in threads of this process, or here if the ranks are processes. Returns what rank 0 measured, in seconds.
std::vector<double> on_every_rank(World& world, int threads, const std::function<std::vector<double>(std::shared_ptr<Group>)>& rank_body) {
  auto groups = world.make_groups(threads);
  std::vector<std::vector<double>> results(groups.size());
  std::vector<std::thread> others;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&](size_t i) {
    try {
      at::set_num_threads(1);
      results[i] = rank_body(groups[i]);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      groups[i]->abort(error.what());
    }
  };
  for (size_t i = 1; i < groups.size(); ++i) others.emplace_back(run, i);
  run(0);
  for (std::thread& thread : others) thread.join();
  if (failure) std::rethrow_exception(failure);
  return results[0];
}

void require_steps(const WorkerBenchArguments& arguments) {
  if (arguments.steps < 1)
    throw Error(ErrorCode::invalid_argument, "cli", fmt::format("--steps {} is below 1", arguments.steps), "1 or more");
}

namespace {

int bench_step(const WorkerBenchArguments& arguments) {
  require_steps(arguments);
  models::ModelOptions options;
  options.name = arguments.model;
  options = models::resolve(options);
  const models::InputSpec input = models::default_input(options);
  const int64_t batch = arguments.batch > 0 ? arguments.batch : models::default_batch(options);
  World world = World::join(world_options_of(arguments));
  const int threads = threads_of(arguments);
  double timed_cpu = 0;
  const std::vector<double> seconds = on_every_rank(world, threads, [&](std::shared_ptr<Group> group) {
    torch::manual_seed(1);
    const Model model = models::make_factory(options, input)();
    DataParallel replica(group, model.module, SGD{.lr = 1e-3, .momentum = 0.9}, {.share_parameters = true});
    std::vector<int64_t> shape = input.shape;
    shape.insert(shape.begin(), batch);
    const bool tokens = options.name == "gpt";
    const at::Tensor data = tokens ? at::randint(input.classes, shape, at::kLong) : at::randn(shape);
    const at::Tensor target = at::randint(input.classes, {tokens ? batch * input.shape[0] : batch}, at::kLong);
    // No barrier between steps: ranks keep step by the exchange itself, as in training.
    std::vector<double> times;
    constexpr int64_t kWarmUp = 5;
    double cpu_start = 0;
    for (int64_t i = -kWarmUp; i < arguments.steps; ++i) {
      if (i == 0) cpu_start = monitor::process_cpu_seconds();
      const auto start = SteadyClock::now();
      const at::Tensor loss = torch::nn::functional::cross_entropy(model.forward(data), target);
      replica.step(loss, batch, batch * group->size());
      if (i >= 0) times.push_back(std::chrono::duration<double>(SteadyClock::now() - start).count());
    }
    if (group->rank() == 0) timed_cpu = (monitor::process_cpu_seconds() - cpu_start) / static_cast<double>(arguments.steps);
    return times;
  });
  if (world.worker() == 0) {
    const int ranks = arguments.workers;
    const double middle = median(seconds);
    // A process of its own per rank: rank 0's share stands for each.
    const double cpu = threads > 1 ? timed_cpu : timed_cpu * ranks;
    const Json json = {{"model", arguments.model},
                       {"path", arguments.path},
                       {"workers", ranks},
                       {"batch", batch},
                       {"steps", arguments.steps},
                       {"median_ms", middle * 1e3},
                       {"min_ms", *std::min_element(seconds.begin(), seconds.end()) * 1e3},
                       {"samples_per_second", static_cast<double>(batch * ranks) / middle},
                       {"cpu_seconds_per_step", cpu}};
    if (arguments.json)
      fmt::print("{}\n", json.dump());
    else
      fmt::print("{} x{} over {}: {:.2f} ms a step (best {:.2f}), {:.0f} samples/s, {:.4f} CPU seconds a step\n", arguments.model, ranks,
                 arguments.path, json["median_ms"].get<double>(), json["min_ms"].get<double>(), json["samples_per_second"].get<double>(),
                 cpu);
  }
  world.leave();
  return 0;
}

}  // namespace

void add_worker_bench(CLI::App& app, WorkerAction& action) {
  auto arguments = std::make_shared<WorkerBenchArguments>();
  const auto add_common = [&](CLI::App* command) {
    command->add_option("--workers", arguments->workers);
    command->add_option("--path", arguments->path);
    command->add_option("--steps", arguments->steps);
    command->add_flag("--json", arguments->json);
  };
  CLI::App* step = app.add_subcommand("bench-step", "Training steps of a model");
  step->add_option("--model", arguments->model);
  step->add_option("--batch", arguments->batch);
  add_common(step);
  step->callback([arguments, &action] { action = [arguments] { return bench_step(*arguments); }; });
  CLI::App* collectives = app.add_subcommand("bench-collectives", "One collective operation");
  collectives->add_option("--op", arguments->op);
  collectives->add_option("--bytes", arguments->bytes);
  collectives->add_option("--algorithm", arguments->algorithm);
  collectives->add_flag("--tune", arguments->tune);
  collectives->add_option("--output", arguments->output);
  add_common(collectives);
  collectives->callback([arguments, &action] {
    action = [arguments] { return arguments->tune ? tune_collectives(*arguments) : bench_collectives(*arguments); };
  });
}

}  // namespace trireme::cli
