#include <fmt/format.h>

#include <trireme/base/hash.h>
#include <trireme/base/json.h>
#include <trireme/comm/at_the_end.h>
#include <trireme/comm/odd_ranks.h>
#include <numeric>

namespace trireme::comm {
namespace {

using Parameters = ParametersAtTheEnd;
using OptimizersOfRank = std::map<std::string, Parameters>;

OptimizersOfRank read(const AtTheEnd& facts) {
  OptimizersOfRank all;
  for (const auto& [optimizer, text] : facts) all[optimizer] = Parameters::from_text(text);
  return all;
}

// The digests of one parameter, by rank. Empty if a rank has no such parameter.
std::vector<int64_t> digests_of(const std::vector<OptimizersOfRank>& ranks,
                                const std::string& optimizer, size_t parameter) {
  std::vector<int64_t> values;
  for (const OptimizersOfRank& rank : ranks) {
    const auto found = rank.find(optimizer);
    if (found == rank.end() || parameter >= found->second.digests.size()) return {};
    values.push_back(found->second.digests[parameter].second);
  }
  return values;
}

// Empty if no parameter of all ranks differs.
std::string describe_difference(const std::vector<OptimizersOfRank>& told, int own_rank) {
  const OptimizersOfRank& own = told[static_cast<size_t>(own_rank)];
  std::vector<std::pair<std::string, size_t>> places;  // Optimizer and parameter.
  for (const auto& [optimizer, parameters] : own)
    for (size_t p = 0; p < parameters.digests.size(); ++p) places.emplace_back(optimizer, p);
  std::vector<int> ranks(told.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto found = find_odd_thing(ranks, places.size(), [&](size_t place) {
    return digests_of(told, places[place].first, places[place].second);
  });
  if (!found) return {};
  const auto& [optimizer, p] = places[found->thing];
  const Parameters& parameters = own.at(optimizer);
  return fmt::format("{}, when {} steps were done. {}{}",
                     found->ranks.sentence(fmt::format("at leave(), the parameter '{}' of {}",
                                                       parameters.digests[p].first, optimizer)),
                     parameters.steps, since_when(parameters.alike_in),
                     found->others > 0 ? fmt::format(", and {} others", found->others) : "");
}

}  // namespace

std::string ParametersAtTheEnd::to_text() const {
  return Json({{"digests", digests}, {"steps", steps}, {"alike_in", alike_in}}).dump();
}

ParametersAtTheEnd ParametersAtTheEnd::from_text(const std::string& text) {
  const Json read = Json::parse(text);
  Parameters parameters;
  read.at("digests").get_to(parameters.digests);
  read.at("steps").get_to(parameters.steps);
  read.at("alike_in").get_to(parameters.alike_in);
  return parameters;
}

std::map<std::string, std::string> facts_of(const AtTheEnd& own) {
  std::map<std::string, std::string> facts;
  for (const auto& [optimizer, parameters] : read(own)) {
    uint64_t hash = 1;
    for (const auto& [name, digest] : parameters.digests)
      hash = mix64(hash, static_cast<uint64_t>(digest));
    facts[optimizer] = fmt::format("{:x}", hash);
  }
  return facts;
}

Error difference_at_the_end(membership::Member& member, int rank, int ranks, const AtTheEnd& own,
                            Deadline deadline) {
  const auto key = [](int of) { return fmt::format("at-the-end/{}", of); };
  member.set(key(rank), Json(own).dump());
  std::vector<OptimizersOfRank> told;
  for (int each = 0; each < ranks; ++each)
    told.push_back(read(Json::parse(member.get(key(each), deadline)).get<AtTheEnd>()));
  const std::string found = describe_difference(told, rank);
  return Error(ErrorCode::invalid_argument, "comm",
               found.empty() ? "at leave(), the ranks have other optimizers" : found,
               "the same changes on all ranks. If one rank alone is to change its parameters at "
               "the end, such as to its best ones, it does so behind leave()");
}

}  // namespace trireme::comm
