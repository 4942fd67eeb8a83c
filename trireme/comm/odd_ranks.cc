#include <fmt/format.h>

#include <trireme/comm/odd_ranks.h>
#include <algorithm>
#include <utility>

namespace trireme {

std::string names_of_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool is_last = i > 0 && i + 1 == ranks.size();
    text += fmt::format("{}{}", i == 0 ? " " : is_last ? " and " : ", ", ranks[i]);
  }
  return text;
}

OddRanks find_odd_ranks(std::span<const int> ranks, std::span<const int64_t> values) {
  OddRanks found;
  if (std::ranges::adjacent_find(values, std::not_equal_to()) == values.end()) return found;
  int64_t usual = values.front();
  for (const int64_t value : values)
    if (2 * std::ranges::count(values, value) > std::ssize(values)) {
      usual = value;
      found.has_majority = true;
    }
  const int64_t last = *std::ranges::find_if(values.rbegin(), values.rend(),
                                             [&](int64_t value) { return value != usual; });
  for (size_t i = 0; i < values.size(); ++i) {
    const bool is_odd = found.has_majority ? values[i] != usual : values[i] == last;
    (is_odd ? found.odd : found.others).push_back(ranks[i]);
  }
  return found;
}

std::optional<OddThing> find_odd_thing(
    std::span<const int> ranks, size_t count,
    const std::function<std::vector<int64_t>(size_t thing)>& values_of) {
  std::optional<OddThing> first;
  for (size_t thing = 0; thing < count; ++thing) {
    OddRanks found = find_odd_ranks(ranks, values_of(thing));
    if (!found) continue;
    if (first)
      ++first->others;
    else
      first = OddThing{thing, std::move(found), 0};
  }
  return first;
}

std::string since_when(int64_t alike_in) {
  return fmt::format("Something else than the optimizer's steps has changed it since {}",
                     alike_in > 0 ? fmt::format("step {}", alike_in) : "the start");
}

std::string OddRanks::sentence(const std::string& what) const {
  return fmt::format("{} of {} is not that of {}{}", what, names_of_ranks(odd),
                     names_of_ranks(others),
                     has_majority ? "" : " (nothing tells which of them is right)");
}

}  // namespace trireme
