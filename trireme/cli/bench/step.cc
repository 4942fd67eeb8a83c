#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <trireme/base/unix_time.h>
#include <trireme/cli/bench/ranks.h>
#include <trireme/cli/bench_paths.h>
#include <trireme/models/build.h>
#include <trireme/monitor/resources.h>
#include <trireme/parallel/data_parallel.h>
#include <algorithm>
#include <chrono>

namespace trireme::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

// The model, the random batch and the engine of one rank.
class Training {
 public:
  Training(const RankArguments& arguments, std::shared_ptr<Group> group)
      : options_(models::resolve({.name = arguments.model})),
        input_(models::default_input(options_)),
        batch_(arguments.batch > 0 ? arguments.batch : models::default_batch(options_)),
        ranks_(group->size()),
        model_(make_model()),
        replica_(std::move(group), model_.module, SGD{.lr = 1e-3, .momentum = 0.9},
                 {.share_parameters = true,
                  .compression = {arguments.compression, arguments.compression_rank}}) {
    std::vector<int64_t> shape = input_.shape;
    shape.insert(shape.begin(), batch_);
    const bool tokens = options_.name == "gpt";
    data_ = tokens ? at::randint(input_.classes, shape, at::kLong) : at::randn(shape);
    target_ = at::randint(input_.classes, {tokens ? batch_ * input_.shape[0] : batch_}, at::kLong);
  }

  StepOutcome step() {
    const at::Tensor loss = at::cross_entropy_loss(model_.forward(data_), target_);
    return replica_.step(loss, batch_, batch_ * ranks_);
  }
  int64_t batch() const { return batch_; }

 private:
  Model make_model() const {
    at::manual_seed(1);
    return models::make_factory(options_, input_)();
  }

  models::ModelOptions options_;
  models::InputSpec input_;
  int64_t batch_, ranks_;
  Model model_;
  DataParallel replica_;
  at::Tensor data_, target_;
};

// The measurements of rank 0 other than its times.
struct Seen {
  double cpu_seconds = 0;  // The CPU time of its process for one step.
  int64_t batch = 0, bytes_sent = 0;
};

std::vector<double> timed_steps(Training& training, int64_t steps, Seen& seen) {
  // There is no barrier between steps: the exchange keeps the ranks together, as in training.
  std::vector<double> seconds;
  constexpr int64_t kWarmUpSteps = 5;
  double cpu_start = 0;
  for (int64_t i = -kWarmUpSteps; i < steps; ++i) {
    if (i == 0) cpu_start = monitor::process_cpu_seconds();
    const auto start = SteadyClock::now();
    seen.bytes_sent = training.step().bytes_sent;
    if (i >= 0)
      seconds.push_back(std::chrono::duration<double>(SteadyClock::now() - start).count());
  }
  seen.cpu_seconds = (monitor::process_cpu_seconds() - cpu_start) / static_cast<double>(steps);
  seen.batch = training.batch();
  return seconds;
}

void print(const RankArguments& arguments, const std::vector<double>& seconds, const Seen& seen) {
  const int ranks = arguments.workers;
  const double middle = median(seconds);
  // With one process for each rank, the value of rank 0 stands for each.
  const double cpu = threads_of(arguments) > 1 ? seen.cpu_seconds : seen.cpu_seconds * ranks;
  const Json json = {{"model", arguments.model},
                     {"path", arguments.path},
                     {"workers", ranks},
                     {"batch", seen.batch},
                     {"steps", arguments.steps},
                     {"compression", arguments.compression},
                     {"median_ms", middle * 1e3},
                     {"min_ms", *std::min_element(seconds.begin(), seconds.end()) * 1e3},
                     {"samples_per_second", static_cast<double>(seen.batch * ranks) / middle},
                     {"cpu_seconds_per_step", cpu},
                     {"bytes_sent_per_step", seen.bytes_sent}};
  if (arguments.json)
    fmt::print("{}\n", json.dump());
  else
    fmt::print(
        "{} x{} over {}: {:.2f} ms a step (best {:.2f}), {:.0f} samples/s, {:.4f} CPU seconds a "
        "step\n",
        arguments.model, ranks, arguments.path, json["median_ms"].get<double>(),
        json["min_ms"].get<double>(), json["samples_per_second"].get<double>(), cpu);
}

}  // namespace

int bench_step(const RankArguments& arguments) {
  require_steps(arguments);
  World world = World::join(world_options_of(arguments));
  Seen seen_by_first;
  const std::vector<double> seconds =
      on_every_rank(world, threads_of(arguments), [&](std::shared_ptr<Group> group) {
        const int rank = group->rank();
        Training training(arguments, std::move(group));
        Seen seen;
        std::vector<double> times = timed_steps(training, arguments.steps, seen);
        if (rank == 0) seen_by_first = seen;
        return times;
      });
  if (world.worker() == 0) print(arguments, seconds, seen_by_first);
  world.leave();
  return 0;
}

int bench_first_step(const RankArguments& arguments) {
  World world = World::join(world_options_of(arguments));
  double finished = 0;
  on_every_rank(world, threads_of(arguments), [&](std::shared_ptr<Group> group) {
    const int rank = group->rank();
    Training(arguments, std::move(group)).step();
    if (rank == 0) finished = unix_seconds();
    return std::vector<double>();
  });
  if (world.worker() == 0) fmt::print("{}\n", Json{{"first_step_at", finished}}.dump());
  world.leave();
  return 0;
}

}  // namespace trireme::cli
