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
  std::vector<int> ranks(told.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::string first;
  int others = -1;
  for (const auto& [optimizer, parameters] : told[static_cast<size_t>(own_rank)])
    for (size_t p = 0; p < parameters.digests.size(); ++p) {
      const std::vector<int64_t> values = digests_of(told, optimizer, p);
      const OddRanks found = values.empty() ? OddRanks() : find_odd_ranks(ranks, values);
      if (!found || ++others > 0) continue;
      first = fmt::format(
          "{}, when {} steps were done. Something else than the optimizer's steps has changed it "
          "since {}",
          found.sentence(fmt::format("at leave(), the parameter '{}' of {}",
                                     parameters.digests[p].first, optimizer)),
          parameters.steps,
          parameters.alike_in > 0 ? fmt::format("step {}", parameters.alike_in) : "the start");
    }
  if (others > 0) first += fmt::format(", and {} others", others);
  return first;
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
