#include <trireme/plan/placement.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <numeric>
#include <utility>

namespace trireme::plan {
namespace {

[[noreturn]] void refuse_placement(const std::string& what) {
  throw Error(ErrorCode::internal, "plan", "placement: " + what);
}

Json to_json_of(const Carrier& carrier) {
  return {{"path", carrier.path}, {"ranks", carrier.ranks}, {"hosts", carrier.hosts}};
}

}  // namespace

bool Placement::runs_in_background() const {
  return between && between->size() == ranks() && between->runs_in_background();
}

std::string Placement::describe() const {
  std::string text = fmt::format("{} rank{} on {} host{}: ", ranks(), ranks() == 1 ? "" : "s",
                                 host_count(), host_count() == 1 ? "" : "s");
  std::string inside_hosts;
  for (const Carrier& carrier : inside)
    if (carrier.size() > 1) inside_hosts = carrier.path;
  if (!between) return text + (inside_hosts.empty() ? "no messages" : inside_hosts);
  if (!inside_hosts.empty()) text += inside_hosts + " inside, ";
  return text + between->path + " between";
}

Json Placement::to_json() const {
  Json json = {{"hosts", hosts}, {"inside", Json::array()}};
  for (const Carrier& carrier : inside) json["inside"].push_back(to_json_of(carrier));
  json["between"] = between ? to_json_of(*between) : Json(nullptr);
  return json;
}

Placement on_one_host(int ranks, const std::string& path, const CollectiveTable& table) {
  Carrier carrier{path, std::vector<int>(static_cast<size_t>(ranks)), {}};
  std::iota(carrier.ranks.begin(), carrier.ranks.end(), 0);
  return {std::vector<int>(static_cast<size_t>(ranks), 0), {carrier}, std::nullopt, table};
}

Placement each_alone(int ranks, const std::string& path, const CollectiveTable& table) {
  if (ranks == 1) return on_one_host(1, "threads", table);
  Placement placement;
  placement.table = table;
  Carrier all{path, {}, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    placement.hosts.push_back(rank);
    placement.inside.push_back({"threads", {rank}, {}});
    all.ranks.push_back(rank);
    all.hosts.push_back(rank);
  }
  placement.between = all;
  return placement;
}

Placement part_of(const Placement& job, const std::vector<int>& ranks) {
  Placement part;
  part.table = job.table;
  Carrier between{job.between ? job.between->path : "", {}, {}};
  int host_of_job = -1;
  for (int place = 0; place < static_cast<int>(ranks.size()); ++place) {
    const auto rank = static_cast<size_t>(ranks[static_cast<size_t>(place)]);
    if (job.hosts[rank] != std::exchange(host_of_job, job.hosts[rank])) {
      const auto host = static_cast<size_t>(host_of_job);
      part.inside.push_back({job.inside[host].path, {}, {}});
      between.ranks.push_back(place);
      if (job.between && !job.between->hosts.empty()) {
        const auto& joined = job.between->ranks;
        const auto leader = std::ranges::find(joined, job.inside[host].ranks.front());
        between.hosts.push_back(job.between->hosts[static_cast<size_t>(leader - joined.begin())]);
      }
    }
    part.inside.back().ranks.push_back(place);
    part.hosts.push_back(part.host_count() - 1);
  }
  if (part.host_count() > 1) part.between = std::move(between);
  return part;
}

void check(const Placement& placement) {
  std::vector<int> times(placement.hosts.size(), 0);
  for (size_t host = 0; host < placement.inside.size(); ++host) {
    const Carrier& carrier = placement.inside[host];
    if (carrier.ranks.empty()) refuse_placement(fmt::format("host {} has no rank", host));
    if (!std::is_sorted(carrier.ranks.begin(), carrier.ranks.end()))
      refuse_placement(fmt::format("the ranks of host {} are not in ascending order", host));
    for (const int rank : carrier.ranks) {
      if (rank < 0 || rank >= placement.ranks())
        refuse_placement(
            fmt::format("host {} names rank {} of {}", host, rank, placement.ranks()));
      ++times[static_cast<size_t>(rank)];
      if (placement.hosts[static_cast<size_t>(rank)] != static_cast<int>(host))
        refuse_placement(fmt::format("rank {} is on host {} and in the carrier of host {}", rank,
                                     placement.hosts[static_cast<size_t>(rank)], host));
    }
  }
  for (size_t rank = 0; rank < times.size(); ++rank)
    if (times[rank] != 1)
      refuse_placement(fmt::format("rank {} is in the carriers of {} hosts", rank, times[rank]));
  if ((placement.host_count() > 1) != placement.between.has_value())
    refuse_placement(fmt::format("{} hosts, and {} carrier between them", placement.host_count(),
                                 placement.between ? "a" : "no"));
  if (!placement.between) return;
  for (int host = 0; host < placement.host_count(); ++host) {
    const int leader = placement.inside[static_cast<size_t>(host)].ranks.front();
    const auto& joined = placement.between->ranks;
    if (std::find(joined.begin(), joined.end(), leader) == joined.end())
      refuse_placement(fmt::format(
          "rank {} is the first of host {} and cannot reach the other hosts", leader, host));
  }
}

}  // namespace trireme::plan
