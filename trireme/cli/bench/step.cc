#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <fmt/format.h>
#include <torch/optim/sgd.h>

#include <trireme/base/unix_time.h>
#include <trireme/cli/bench/ranks.h>
#include <trireme/cli/bench_paths.h>
#include <trireme/models/build.h>
#include <trireme/models/family.h>
#include <trireme/monitor/resources.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/distributed.h>
#include <trireme/parallel/engine.h>
#include <trireme/run/model_library.h>
#include <algorithm>
#include <chrono>

namespace trireme::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

OptimizerFactory optimizer_of(const RankArguments& arguments) {
  if (arguments.mesh.optimizer == "adam") return Adam{.lr = 1e-3};
  return SGD{.lr = 1e-3, .momentum = 0.9};
}

// A model of the suite with a random batch of one rank, or of one replica.
class Work {
 public:
  explicit Work(const RankArguments& arguments)
      : options_(models::resolve({.name = arguments.model})),
        input_(models::default_input(options_)),
        size_(arguments.batch > 0 ? arguments.batch : models::default_batch(options_)) {
    at::manual_seed(1);
    model = models::make_factory(options_, input_)();
    std::vector<int64_t> shape = input_.shape;
    shape.insert(shape.begin(), size_);
    const models::Family* const family = models::family_of(options_);
    const bool tokens = family && family->takes_tokens;
    batch.data = tokens ? at::randint(input_.classes, shape, at::kLong) : at::randn(shape);
    if (input_.classes > 0)
      batch.target =
          at::randint(input_.classes, {tokens ? size_ * input_.shape[0] : size_}, at::kLong);
    else  // A model of the user's own that classifies nothing.
      batch.target = at::randn_like(output_of(model, batch).detach());
    // A target for each sample, so that a batch can be cut.
    if (tokens) batch.target = batch.target.view({size_, input_.shape[0]});
    if (input_.categories > 0)
      batch.more["categories"] =
          at::randint(int64_t{1} << 32, {size_, input_.categories}, at::kLong);
    batch.indices.resize(static_cast<size_t>(size_));
  }
  int64_t size() const { return size_; }
  static at::Tensor loss(const at::Tensor& output, const at::Tensor& target) {
    return target.is_floating_point() ? at::mse_loss(output, target)
                                      : at::cross_entropy_loss(output, target.reshape({-1}));
  }

 private:
  models::ModelOptions options_;
  models::InputSpec input_;
  int64_t size_;

 public:
  Model model;
  Batch batch;
};

// The engine of one rank: of a mesh, or of replicas under a memory policy.
class EngineTraining {
 public:
  EngineTraining(const RankArguments& arguments, std::shared_ptr<Group> group,
                 const MeshRank& mesh = {})
      : work_(arguments), engine_(make(arguments, std::move(group), mesh)) {
    work_.batch.global_size = work_.batch.global_used = work_.size() * engine_->data_share().count;
  }
  StepOutcome step() { return engine_->step({work_.batch, ++steps_}); }
  int64_t batch() const { return work_.size(); }
  Json facts() const {
    Json facts = engine_->facts_for_report();
    const MemoryUse use = engine_->memory_use();
    facts["activation_bytes"] = {{"measured", use.activation_bytes},
                                 {"predicted", use.predicted_activation_bytes}};
    if (use.predicted_slowdown > 0) facts["predicted_slowdown"] = use.predicted_slowdown;
    return facts;
  }
  int replicas() const { return engine_->data_share().count; }

 private:
  std::unique_ptr<Engine> make(const RankArguments& arguments, std::shared_ptr<Group> group,
                               const MeshRank& mesh) const {
    EngineSetting setting;
    setting.strategy = arguments.mesh.is_wanted() ? "pipeline" : "mirrored";
    setting.group = std::move(group);
    setting.mesh = mesh;
    setting.model = work_.model;
    setting.sample = [this](const DataShare&) { return work_.batch; };
    setting.optimizer = optimizer_of(arguments);
    setting.loss = Work::loss;
    setting.division = arguments.mesh.division();
    setting.memory = arguments.mesh.memory();
    return find_strategy(setting.strategy).make(setting);
  }

  Work work_;
  std::unique_ptr<Engine> engine_;
  int64_t steps_ = 0;
};

// The model, the random batch and the engine of one rank.
class Training {
 public:
  Training(const RankArguments& arguments, std::shared_ptr<Group> group)
      : work_(arguments),
        ranks_(group->size()),
        replica_(std::move(group), work_.model.module, optimizer_of(arguments),
                 {.share_parameters = true,
                  .compression = {arguments.compression, arguments.compression_rank}}) {}

  StepOutcome step() {
    const at::Tensor loss = Work::loss(output_of(work_.model, work_.batch), work_.batch.target);
    return replica_.step(loss, work_.size(), work_.size() * ranks_);
  }
  int64_t batch() const { return work_.size(); }
  Json facts() const { return Json::object(); }
  int replicas() const { return static_cast<int>(ranks_); }

 private:
  Work work_;
  int64_t ranks_;
  DataParallel replica_;
};

// A loop as people write it for one process.
class WrittenTraining {
 public:
  WrittenTraining(const RankArguments& arguments, World& world)
      : work_(arguments),
        ranks_(world.size()),
        optimizer_(
            OwnStepsOptions{.compression = {arguments.compression, arguments.compression_rank},
                            .check_every = arguments.check_every,
                            .own_samples = true},
            world, work_.model.module, torch::optim::SGDOptions(1e-3).momentum(0.9)) {}

  StepOutcome step() {
    optimizer_.zero_grad();
    Work::loss(output_of(work_.model, work_.batch), work_.batch.target).backward();
    optimizer_.step();
    return {};
  }
  int64_t batch() const { return work_.size(); }
  Json facts() const { return Json::object(); }
  int replicas() const { return ranks_; }

 private:
  Work work_;
  int ranks_;
  Distributed<torch::optim::SGD> optimizer_;
};

// The measurements of rank 0 other than its times.
struct Seen {
  double cpu_seconds = 0;  // The CPU time of its process for one step.
  int64_t batch = 0, bytes_sent = 0;
  int replicas = 1;
  Json facts;  // Engine::facts_for_report()
};

template <typename AnyTraining>
std::vector<double> timed_steps(AnyTraining& training, int64_t steps, Seen& seen) {
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
  seen.replicas = training.replicas();
  seen.facts = training.facts();
  return seconds;
}

void print(const RankArguments& arguments, const std::vector<double>& seconds, const Seen& seen) {
  const int ranks = arguments.workers;
  const double middle = median(seconds);
  // With one process for each rank, the value of rank 0 stands for each.
  const double cpu = threads_of(arguments) > 1 ? seen.cpu_seconds : seen.cpu_seconds * ranks;
  Json json = {{"model", arguments.model},
               {"path", arguments.path},
               {"workers", ranks},
               {"batch", seen.batch},
               {"steps", arguments.steps},
               {"compression", arguments.compression},
               {"median_ms", middle * 1e3},
               {"min_ms", *std::min_element(seconds.begin(), seconds.end()) * 1e3},
               {"samples_per_second", static_cast<double>(seen.batch * seen.replicas) / middle},
               {"cpu_seconds_per_step", cpu},
               {"bytes_sent_per_step", seen.bytes_sent}};
  json.update(seen.facts);
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
  if (!arguments.library.empty()) use_model_library(arguments.library);
  World world = World::join(world_options_of(arguments));
  Seen seen_by_first;
  const auto measure = [&](auto training, int rank) {
    Seen seen;
    std::vector<double> times = timed_steps(*training, arguments.steps, seen);
    if (rank == 0) seen_by_first = seen;
    return times;
  };
  const auto with_mesh = [&](std::shared_ptr<Group> group, const MeshRank& mesh) {
    const int rank = group->rank();
    return measure(std::make_unique<EngineTraining>(arguments, std::move(group), mesh), rank);
  };
  const auto alike = [&](std::shared_ptr<Group> group) {
    const int rank = group->rank();
    if (arguments.written)
      return measure(std::make_unique<WrittenTraining>(arguments, world), rank);
    if (arguments.mesh.has_memory_policy())
      return measure(std::make_unique<EngineTraining>(arguments, std::move(group)), rank);
    return measure(std::make_unique<Training>(arguments, std::move(group)), rank);
  };
  const int threads = threads_of(arguments);
  const std::vector<double> seconds =
      arguments.mesh.is_wanted()
          ? on_every_rank_of_mesh(
                world, threads,
                plan::mesh_of(arguments.mesh.division().mesh, world.workers() * threads),
                with_mesh)
          : on_every_rank(world, threads, alike);
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
