#include <fmt/format.h>

#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/cli/config.h>
#include <trireme/plan/strategy.h>
#include <algorithm>

namespace trireme::cli {
namespace {

constexpr int kMostMirroredByDefault = 8;

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "config", what, remedy);
}

int replicas_per_worker(const Config& config, const std::string& strategy, int cores) {
  if (config.strategy.replicas > 0) return config.strategy.replicas;
  if (strategy != "mirrored") return 1;
  return std::min(cores > 0 ? cores : usable_cores(), kMostMirroredByDefault);
}

void check_backend(const std::string& backend, const ResolvedStrategy& strategy) {
  if (backend == "threads" && strategy.workers > 1) {
    refuse(fmt::format("comm.backend is threads, which connects the replicas of one process, but "
                       "there are {} workers",
                       strategy.workers),
           "comm.backend=auto, shm, tcp or gloo");
  }
  if (backend != "auto" && backend != "threads" && strategy.name == "mirrored") {
    refuse(
        fmt::format(
            "comm.backend is {}, which connects processes, but strategy mirrored is one process",
            backend),
        "comm.backend=threads or auto, or strategy.name=multi_worker with --workers 2");
  }
}

}  // namespace

void require_workers(int workers) {
  if (workers < 1)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--workers {} is below 1", workers), "--workers 1 or more");
}

ResolvedStrategy check_with_workers(const Config& config, int workers, int cores) {
  require_workers(workers);
  ResolvedStrategy resolved;
  resolved.name = plan::resolve_strategy(config.strategy.name, workers, config.strategy.replicas);
  resolved.workers = workers;
  resolved.replicas_per_worker = replicas_per_worker(config, resolved.name, cores);
  resolved.world_size = workers * resolved.replicas_per_worker;
  check_backend(config.comm.backend, resolved);
  if (config.data.batch < resolved.world_size) {
    refuse(
        fmt::format("data.batch is {}, but there are {} replicas ({} workers x {}): the global "
                    "batch must have a sample for each",
                    config.data.batch, resolved.world_size, workers, resolved.replicas_per_worker),
        fmt::format("data.batch={}, or fewer workers or replicas", resolved.world_size));
  }
  if (const int shards = config.reproducible.virtual_shards;
      shards > 0 && shards < resolved.world_size) {
    refuse(
        fmt::format("reproducible.virtual_shards is {}, but there are {} replicas ({} workers x "
                    "{}): some would have nothing to compute",
                    shards, resolved.world_size, workers, resolved.replicas_per_worker),
        fmt::format("reproducible.virtual_shards={}, or fewer workers or replicas",
                    resolved.world_size));
  }
  return resolved;
}

}  // namespace trireme::cli
