#include <trireme/plan/collective_plan.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <array>

namespace trireme::plan {
namespace {

constexpr std::array kCollectives = {Collective::all_reduce, Collective::reduce_scatter,
                                     Collective::all_gather, Collective::broadcast,
                                     Collective::all_to_all};
constexpr std::array kAlgorithms = {Algorithm::naive,
                                    Algorithm::direct,
                                    Algorithm::ring,
                                    Algorithm::recursive_doubling,
                                    Algorithm::halving_doubling,
                                    Algorithm::tree,
                                    Algorithm::hierarchical};

template <typename Named>
Named from_string(std::span<const Named> known, std::string_view name, std::string_view what) {
  std::vector<std::string_view> names;
  for (const Named each : known) {
    if (to_string(each) == name) return each;
    names.push_back(to_string(each));
  }
  throw Error(ErrorCode::invalid_argument, "plan",
              fmt::format("'{}' is not a known {}", name, what),
              fmt::format("one of {}", fmt::join(names, ", ")));
}

}  // namespace

std::string_view to_string(Collective collective) {
  switch (collective) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_gather: return "all_gather";
    case Collective::broadcast: return "broadcast";
    case Collective::all_to_all: return "all_to_all";
  }
  throw Error(ErrorCode::internal, "plan",
              fmt::format("no collective has the number {}", static_cast<int>(collective)));
}

std::string_view to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::naive: return "naive";
    case Algorithm::direct: return "direct";
    case Algorithm::ring: return "ring";
    case Algorithm::recursive_doubling: return "recursive_doubling";
    case Algorithm::halving_doubling: return "halving_doubling";
    case Algorithm::tree: return "tree";
    case Algorithm::hierarchical: return "hierarchical";
  }
  throw Error(ErrorCode::internal, "plan",
              fmt::format("no algorithm has the number {}", static_cast<int>(algorithm)));
}

Collective collective_from_string(std::string_view name) {
  return from_string(all_collectives(), name, "collective");
}
Algorithm algorithm_from_string(std::string_view name) {
  return from_string(all_algorithms(), name, "algorithm of a collective");
}
std::span<const Collective> all_collectives() { return kCollectives; }
std::span<const Algorithm> all_algorithms() { return kAlgorithms; }

std::pair<int64_t, int64_t> CollectivePlan::chunk_range(int chunk, int64_t elements) const {
  const int64_t each = elements / chunks;
  const int64_t longer = elements % chunks;  // The first chunks have one more element.
  const int64_t first = chunk * each + std::min<int64_t>(chunk, longer);
  return {first, first + each + (chunk < longer ? 1 : 0)};
}

Json CollectivePlan::to_json() const {
  Json json = {{"collective", to_string(collective)},
               {"algorithm", to_string(algorithm)},
               {"world_size", world_size},
               {"chunks", chunks}};
  if (collective == Collective::broadcast) json["root"] = root;
  if (!hosts.empty()) json["hosts"] = hosts;
  json["rounds"] = Json::array();
  for (const auto& round : rounds) {
    Json ranks = Json::array();
    for (const RankRound& actions : round) {
      Json receives = Json::array();
      for (const Transfer& transfer : actions.receives)
        receives.push_back({{"chunk", transfer.chunk}, {"sources", transfer.sources}});
      Json sends = Json::array();
      for (const auto& [chunk, receiver] : actions.sends)
        sends.push_back({{"chunk", chunk}, {"to", receiver}});
      ranks.push_back({{"receives", std::move(receives)}, {"sends", std::move(sends)}});
    }
    json["rounds"].push_back(std::move(ranks));
  }
  return json;
}

}  // namespace trireme::plan
