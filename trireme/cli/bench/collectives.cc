#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/cli/bench/ranks.h>
#include <trireme/plan/collective_cost.h>
#include <algorithm>
#include <chrono>
#include <filesystem>

namespace trireme::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr int kWarmUp = 3;

// The operation on tensors of this many bytes, called as a user calls it.
class Operation {
 public:
  Operation(plan::Collective collective, int64_t bytes, Group& group, bool shared)
      : collective_(collective),
        part_(at::ones({std::max<int64_t>(1, bytes / 4 / group.size())})) {
    const int64_t elements = part_.numel() * group.size();
    whole_ = shared ? group.shared_tensor({elements}, at::kFloat).fill_(1) : at::ones({elements});
    if (collective == plan::Collective::all_to_all) received_ = at::ones({elements});
  }

  void run(Group& group) const {
    switch (collective_) {
      case plan::Collective::all_reduce: return group.all_reduce(whole_);
      case plan::Collective::reduce_scatter: return group.reduce_scatter(whole_, part_);
      case plan::Collective::all_gather: return group.all_gather(part_, whole_);
      case plan::Collective::broadcast: return group.broadcast(whole_, 0);
      case plan::Collective::all_to_all: return group.all_to_all(whole_, received_);
    }
  }
  // All ranks start each run together, so the time is that of the slowest rank, as users see it.
  double seconds(Group& group) const {
    group.barrier();
    const auto start = SteadyClock::now();
    run(group);
    return std::chrono::duration<double>(SteadyClock::now() - start).count();
  }

 private:
  plan::Collective collective_;
  at::Tensor part_, whole_, received_;
};

// The factor of the bus bandwidth as nccl-tests defines it: the bytes that each link carries.
double bus_factor(plan::Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (collective == plan::Collective::all_reduce) return 2 * others;
  return collective == plan::Collective::broadcast ? 1 : others;
}

plan::CollectiveTable always(plan::Collective collective, plan::Algorithm algorithm) {
  plan::CollectiveTable table;
  table.always(collective, algorithm);
  return table;
}

int hosts_of(const World& world) {
  const int each = std::max(1, world.identity().local_workers);
  return (world.workers() + each - 1) / each;
}

void print(const RankArguments& arguments, plan::Collective collective,
           std::vector<double> seconds, int64_t bytes) {
  const int n = arguments.workers;
  const double middle = median(seconds);
  const Json json = {{"op", arguments.op},
                     {"path", arguments.path},
                     {"workers", n},
                     {"bytes", bytes},
                     {"algorithm", arguments.algorithm},
                     {"tensors", arguments.shared_tensors ? "shared" : "ordinary"},
                     {"median_us", middle * 1e6},
                     {"min_us", *std::min_element(seconds.begin(), seconds.end()) * 1e6},
                     {"bus_gbytes_per_second",
                      static_cast<double>(bytes) * bus_factor(collective, n) / middle / 1e9}};
  if (arguments.json)
    fmt::print("{}\n", json.dump());
  else
    fmt::print("{} of {} x{} over {}: {:.1f} us (best {:.1f}), {:.2f} GB/s on the bus\n",
               arguments.op, format_bytes(bytes), n, arguments.path,
               json["median_us"].get<double>(), json["min_us"].get<double>(),
               json["bus_gbytes_per_second"].get<double>());
}

// The sizes that a table distinguishes, and the number of times each is timed.
constexpr int64_t kTunedBytes[] = {256,       1 << 10, 4 << 10, 16 << 10, 64 << 10,
                                   256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
int times_at(int64_t bytes, int64_t most) {
  return static_cast<int>(std::clamp<int64_t>((64 << 20) / bytes, 5, std::max<int64_t>(5, most)));
}

// The median times of one rank's groups, one group for each algorithm, at each size. The
// algorithms take turns, so that other work of the machine affects all of them. Returns
// [size][algorithm], flat.
std::vector<double> time_algorithms(const std::vector<std::shared_ptr<Group>>& groups,
                                    plan::Collective collective, int64_t most) {
  std::vector<double> medians;
  for (const int64_t bytes : kTunedBytes) {
    const Operation operation(collective, bytes, *groups[0], /*shared=*/false);
    const int times = times_at(bytes, most);
    std::vector<std::vector<double>> seconds(groups.size());
    for (int i = -kWarmUp; i < times; ++i) {
      for (size_t algorithm = 0; algorithm < groups.size(); ++algorithm) {
        const double one = operation.seconds(*groups[algorithm]);
        if (i >= 0) seconds[algorithm].push_back(one);
      }
    }
    for (const auto& each : seconds) medians.push_back(median(each));
  }
  return medians;
}

plan::SizeChoices tune(World& world, int threads, plan::Collective collective, int64_t most) {
  const std::vector<plan::Algorithm> algorithms =
      hosts_of(world) == 1 ? plan::distinct_algorithms_of(collective, world.workers() * threads)
                           : plan::algorithms_of(collective);
  std::vector<std::vector<std::shared_ptr<Group>>> groups(
      static_cast<size_t>(threads));  // [thread][algorithm]
  for (const plan::Algorithm algorithm : algorithms) {
    world.set_table(always(collective, algorithm));
    const auto made = world.make_groups(threads);
    for (size_t thread = 0; thread < groups.size(); ++thread)
      groups[thread].push_back(made[thread]);
  }
  const std::vector<double> medians =
      on_every_rank(world, threads, [&](std::shared_ptr<Group> group) {
        return time_algorithms(
            groups[static_cast<size_t>(group->rank() - world.worker() * threads)], collective,
            most);
      });
  std::vector<plan::MeasuredTime> times;
  for (size_t i = 0; i < medians.size(); ++i)
    times.push_back(
        {kTunedBytes[i / algorithms.size()], algorithms[i % algorithms.size()], medians[i]});
  return plan::fastest_choices(times);
}

}  // namespace

int bench_collectives(const RankArguments& arguments) {
  require_steps(arguments);
  const plan::Collective collective = plan::collective_from_string(arguments.op);
  const int64_t bytes = std::max<int64_t>(4, parse_bytes(arguments.bytes) / 4 * 4);
  World world = World::join(world_options_of(arguments));
  world.connect(threads_of(arguments));
  if (arguments.algorithm != "auto")
    world.set_table(always(collective, plan::algorithm_from_string(arguments.algorithm)));
  const std::vector<double> seconds =
      on_every_rank(world, threads_of(arguments), [&](std::shared_ptr<Group> group) {
        const Operation operation(collective, bytes, *group, arguments.shared_tensors);
        std::vector<double> times;
        for (int64_t i = -kWarmUp; i < arguments.steps; ++i) {
          const double one = operation.seconds(*group);
          if (i >= 0) times.push_back(one);
        }
        return times;
      });
  if (world.worker() == 0) print(arguments, collective, seconds, bytes);
  world.leave();
  return 0;
}

int tune_collectives(const RankArguments& arguments) {
  require_steps(arguments);
  World world = World::join(world_options_of(arguments));
  world.connect(threads_of(arguments));
  const bool writes = world.worker() == 0;
  plan::CollectiveTable table;
  if (writes && !arguments.output.empty() && path_exists(arguments.output))
    table = plan::CollectiveTable::parse(read_file(arguments.output), arguments.output);
  for (const plan::Collective collective : plan::all_collectives()) {
    if (!arguments.op.empty() && plan::collective_from_string(arguments.op) != collective)
      continue;
    const plan::SizeChoices choices =
        tune(world, threads_of(arguments), collective, arguments.steps);
    table.set({arguments.path, collective, arguments.workers, hosts_of(world)}, choices);
  }
  if (writes && arguments.output.empty()) fmt::print("{}", table.to_text());
  if (writes && !arguments.output.empty()) {
    write_file_atomically(arguments.output, table.to_text());
    log_info("the table is in {}; use it by comm.table={}", arguments.output, arguments.output);
  }
  world.leave();
  return 0;
}

}  // namespace trireme::cli
