#include <trireme/plan/collective_cost.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace trireme::plan {
namespace {

// Ranks that share memory wait at barriers. Processes copy twice as well, through staging memory.
// TCP passes the kernel twice; between hosts the figures are those of 1 Gbit/s Ethernet.
constexpr LinkCost kMemory{
    .round_seconds = 5e-7, .message_seconds = 1e-7, .bytes_per_second = 40e9};
constexpr LinkCost kStaging{
    .round_seconds = 4e-6, .message_seconds = 1e-7, .bytes_per_second = 40e9};
constexpr LinkCost kLoopback{
    .round_seconds = 10e-6, .message_seconds = 3e-6, .bytes_per_second = 1.5e9};
constexpr LinkCost kEthernet{.round_seconds = 80e-6,
                             .message_seconds = 8e-6,
                             .bytes_per_second = 119e6,
                             .contended_fraction = 0.91};
// In shared memory the choice of an algorithm matters only for tensors that fit in caches.
constexpr double kPassesCache = 80e9, kPassesMemory = 20e9;
constexpr std::array<std::string_view, 3> kPaths = {"threads", "shm", "tcp"};

// The traffic of one host, in chunks.
struct Traffic {
  int64_t in = 0, out = 0;
  std::set<int> senders;  // The numbers of the hosts that send.
};
struct RankLoad {
  int64_t inside = 0, remote = 0;  // Chunks received from ranks of the same host, and of others.
  int64_t passes = 0;              // Chunks that its core reads and writes.
};

int host_of(const CollectivePlan& plan, int rank) {
  return plan.hosts.empty() ? 0 : plan.hosts[static_cast<size_t>(rank)];
}

RankLoad load_of(const CollectivePlan& plan, const RankRound& actions, int rank,
                 std::map<int, Traffic>& network) {
  RankLoad load;
  for (const Transfer& transfer : actions.receives) {
    load.passes += static_cast<int64_t>(transfer.sources.size()) + 1;
    // The new value is kept aside, then copied.
    if (is_read_by_others(actions, rank, transfer.chunk)) load.passes += 2;
    for (const int source : transfer.sources) {
      if (source == rank) continue;
      if (host_of(plan, source) == host_of(plan, rank)) {
        ++load.inside;
      } else {
        ++load.remote;
        ++network[host_of(plan, rank)].in;
        network[host_of(plan, rank)].senders.insert(host_of(plan, source));
        ++network[host_of(plan, source)].out;
      }
    }
  }
  return load;
}

CollectiveCost cost_of_round(const CollectivePlan& plan, const std::vector<RankRound>& round,
                             const PathCost& path) {
  std::map<int, Traffic> network;
  CollectiveCost slowest;
  double chunks_inside = 0, passes = 0;
  for (int rank = 0; rank < plan.world_size; ++rank) {
    const RankLoad load = load_of(plan, round[static_cast<size_t>(rank)], rank, network);
    const double messages = path.inside.message_seconds * static_cast<double>(load.inside) +
                            path.between.message_seconds * static_cast<double>(load.remote);
    const double way = load.remote > 0 ? path.between.round_seconds : path.inside.round_seconds;
    slowest.fixed_seconds = std::max(slowest.fixed_seconds, way + messages);
    chunks_inside = std::max(chunks_inside, static_cast<double>(load.inside));
    passes = std::max(passes, static_cast<double>(load.passes));
  }
  double chunks_between = 0;
  for (const auto& [host, traffic] : network) {
    const double in = static_cast<double>(traffic.in) /
                      (traffic.senders.size() > 1 ? path.between.contended_fraction : 1);
    chunks_between = std::max({chunks_between, in, static_cast<double>(traffic.out)});
  }
  const double link_seconds = std::max(chunks_inside / path.inside.bytes_per_second,
                                       chunks_between / path.between.bytes_per_second);
  slowest.seconds_per_byte = (link_seconds + passes / path.memory_bytes_per_second) / plan.chunks;
  return slowest;
}

}  // namespace

std::span<const std::string_view> paths_with_plans() { return kPaths; }

PathCost cost_of_path(std::string_view path) {
  if (path == "threads") return {kMemory, kMemory, kPassesCache};
  if (path == "shm") return {kStaging, kStaging, kPassesCache};
  if (path == "tcp") return {kLoopback, kEthernet, kPassesMemory};
  throw Error(ErrorCode::invalid_argument, "plan",
              fmt::format("path '{}' runs no collective plans", path),
              fmt::format("one of {}", fmt::join(kPaths, ", ")));
}

CollectiveCost cost(const CollectivePlan& plan, const PathCost& path) {
  CollectiveCost total;
  for (const auto& round : plan.rounds) {
    const CollectiveCost one = cost_of_round(plan, round, path);
    total.fixed_seconds += one.fixed_seconds;
    total.seconds_per_byte += one.seconds_per_byte;
  }
  return total;
}

}  // namespace trireme::plan
