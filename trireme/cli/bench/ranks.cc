#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/cli/bench/ranks.h>
#include <trireme/cli/bench_paths.h>
#include <algorithm>
#include <mutex>
#include <thread>

namespace trireme::cli {

WorldOptions world_options_of(const RankArguments& arguments) {
  WorldOptions options;
  options.backend = find_bench_path(arguments.path).backend;
  return options;
}

int threads_of(const RankArguments& arguments) {
  return find_bench_path(arguments.path).in_threads ? arguments.workers : 1;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

namespace {

std::vector<double> run_on(
    const std::vector<std::shared_ptr<Group>>& groups,
    const std::function<std::vector<double>(size_t place, std::shared_ptr<Group>)>& rank_body) {
  std::vector<std::vector<double>> results(groups.size());
  std::vector<std::thread> others;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&](size_t i) {
    try {
      at::set_num_threads(1);
      results[i] = rank_body(i, groups[i]);
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

}  // namespace

std::vector<double> on_every_rank(
    World& world, int threads,
    const std::function<std::vector<double>(std::shared_ptr<Group>)>& rank_body) {
  return run_on(world.make_groups(threads),
                [&](size_t, std::shared_ptr<Group> group) { return rank_body(std::move(group)); });
}

std::vector<double> on_every_rank_of_mesh(
    World& world, int threads, const plan::Mesh& mesh,
    const std::function<std::vector<double>(std::shared_ptr<Group>, const MeshRank&)>& rank_body) {
  const auto groups = world.make_groups(threads);
  const std::vector<MeshRank> places = world.mesh(mesh, threads);
  return run_on(groups, [&](size_t place, std::shared_ptr<Group> group) {
    return rank_body(std::move(group), places[place]);
  });
}

void require_steps(const RankArguments& arguments) {
  if (arguments.steps < 1)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--steps {} is below 1", arguments.steps), "1 or more");
}

}  // namespace trireme::cli
