#include <trireme/plan/collective_plan.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <array>

namespace trireme::plan {
namespace {

constexpr std::array<std::pair<Algorithm, std::string_view>, 3> kAlgorithms = {
    {{Algorithm::naive, "naive"}, {Algorithm::direct, "direct"}, {Algorithm::ring, "ring"}}};

}  // namespace

std::string_view to_string(Collective collective) {
  switch (collective) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_gather: return "all_gather";
    case Collective::broadcast: return "broadcast";
  }
  throw Error(ErrorCode::internal, "plan", fmt::format("no collective has the number {}", static_cast<int>(collective)));
}

std::string_view to_string(Algorithm algorithm) {
  for (const auto& [known, name] : kAlgorithms) {
    if (known == algorithm) return name;
  }
  throw Error(ErrorCode::internal, "plan", fmt::format("no algorithm has the number {}", static_cast<int>(algorithm)));
}

Algorithm algorithm_from_string(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& [algorithm, known] : kAlgorithms) {
    if (known == name) return algorithm;
    names.push_back(known);
  }
  throw Error(ErrorCode::invalid_argument, "plan", fmt::format("'{}' is no algorithm of a collective", name),
              fmt::format("one of {}", fmt::join(names, ", ")));
}

std::pair<int64_t, int64_t> CollectivePlan::chunk_range(int chunk, int64_t elements) const {
  const int64_t each = elements / chunks;
  const int64_t longer = elements % chunks;  // The first chunks have one more.
  const int64_t first = chunk * each + std::min<int64_t>(chunk, longer);
  return {first, first + each + (chunk < longer ? 1 : 0)};
}

int64_t CollectivePlan::bytes_received(int rank, int64_t tensor_bytes) const {
  int64_t bytes = 0;
  for (const auto& round : rounds) {
    for (const Transfer& transfer : round[static_cast<size_t>(rank)].receives) {
      const auto [first, last] = chunk_range(transfer.chunk, tensor_bytes);
      const auto own = std::count(transfer.sources.begin(), transfer.sources.end(), rank);
      bytes += (last - first) * (static_cast<int64_t>(transfer.sources.size()) - own);
    }
  }
  return bytes;
}

Json CollectivePlan::to_json() const {
  Json json = {{"collective", to_string(collective)}, {"algorithm", to_string(algorithm)}, {"world_size", world_size}, {"chunks", chunks}};
  if (collective == Collective::broadcast) json["root"] = root;
  json["rounds"] = Json::array();
  for (const auto& round : rounds) {
    Json ranks = Json::array();
    for (const RankRound& actions : round) {
      Json receives = Json::array();
      for (const Transfer& transfer : actions.receives) receives.push_back({{"chunk", transfer.chunk}, {"sources", transfer.sources}});
      Json sends = Json::array();
      for (const auto& [chunk, receiver] : actions.sends) sends.push_back({{"chunk", chunk}, {"to", receiver}});
      ranks.push_back({{"receives", std::move(receives)}, {"sends", std::move(sends)}});
    }
    json["rounds"].push_back(std::move(ranks));
  }
  return json;
}

}  // namespace trireme::plan
