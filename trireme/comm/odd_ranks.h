// Says which ranks have another value than the others.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme {

// "rank 1", "ranks 0 and 2", "ranks 0, 1 and 4".
std::string names_of_ranks(const std::vector<int>& ranks);

// The ranks whose values differ, for a sentence such as "the learning rate of rank 1 is not that
// of ranks 0 and 2". More than half of the ranks are right, and the odd ones are the rest. Without
// such a majority nothing tells which are right: `odd` then has the ranks of the last value.
struct OddRanks {
  std::vector<int> odd, others;
  bool has_majority = false;
  explicit operator bool() const { return !odd.empty(); }
  // "{what} of rank 1 is not that of ranks 0 and 2", and whether it may be the other way round.
  std::string sentence(const std::string& what) const;
};
// `values` are by place in `ranks`. Empty if all are equal.
OddRanks find_odd_ranks(std::span<const int> ranks, std::span<const int64_t> values);

// The first of `count` things whose values differ between the ranks, and how many others do.
// values_of(thing) has its values by place in `ranks`; a thing without values is left out.
struct OddThing {
  size_t thing = 0;
  OddRanks ranks;
  int others = 0;
};
std::optional<OddThing> find_odd_thing(
    std::span<const int> ranks, size_t count,
    const std::function<std::vector<int64_t>(size_t thing)>& values_of);

// "Something else than the optimizer's steps has changed it since step 2". `alike_in` is the last
// step in which it was alike; 0: none.
std::string since_when(int64_t alike_in);

}  // namespace trireme
