#include <trireme/membership/units.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <map>
#include <tuple>

namespace trireme::membership {
namespace {

constexpr int64_t kHole = -1;

struct Unit {
  int number = 0;                // In the last generation.
  std::vector<int64_t> members;  // By position.
  auto holes() const { return std::ranges::count(members, kHole); }
};

std::vector<Unit> units_with_survivors(const std::vector<UnitCandidate>& waiting, int unit) {
  std::map<int, Unit> units;
  for (const UnitCandidate& each : waiting) {
    if (each.worker < 0) continue;
    Unit& its = units[each.worker / unit];
    its.number = each.worker / unit;
    its.members.resize(static_cast<size_t>(unit), kHole);
    its.members[static_cast<size_t>(each.worker % unit)] = each.process;
  }
  std::vector<Unit> in_order;
  for (auto& [number, each] : units) in_order.push_back(std::move(each));
  return in_order;
}

// Leaves `count` units, and adds empty ones if there are fewer.
void keep_the_fullest(std::vector<Unit>& units, size_t count, int unit) {
  std::ranges::stable_sort(units, {}, &Unit::holes);
  units.resize(std::min(units.size(), count));
  std::ranges::sort(units, {}, &Unit::number);
  while (units.size() < count)
    units.push_back({-1, std::vector<int64_t>(static_cast<size_t>(unit), kHole)});
}

// Puts the first candidate that `fits` into each hole.
template <typename Fits>
void fill_holes(std::vector<Unit>& units, std::vector<UnitCandidate>& candidates, Fits fits) {
  for (Unit& unit : units)
    for (size_t position = 0; position < unit.members.size(); ++position) {
      if (unit.members[position] != kHole) continue;
      const auto found = std::ranges::find_if(candidates, [&](const UnitCandidate& each) {
        return fits(each, static_cast<int>(position));
      });
      if (found == candidates.end()) continue;
      unit.members[position] = found->process;
      candidates.erase(found);
    }
}

}  // namespace

UnitSeats fill_units(const std::vector<UnitCandidate>& waiting, int unit, int most) {
  const size_t places = std::min(waiting.size(), static_cast<size_t>(most));
  std::vector<Unit> units = units_with_survivors(waiting, unit);
  keep_the_fullest(units, places / static_cast<size_t>(unit), unit);
  std::vector<UnitCandidate> candidates;
  for (const UnitCandidate& each : waiting) {
    const auto holds = [&](const Unit& its) {
      return std::ranges::count(its.members, each.process) > 0;
    };
    if (std::ranges::none_of(units, holds)) candidates.push_back(each);
  }
  std::ranges::sort(candidates, {}, [](const UnitCandidate& each) {
    return std::tuple(-each.step, each.worker < 0, each.worker, each.process);
  });
  fill_holes(units, candidates,
             [](const UnitCandidate& each, int position) { return each.position == position; });
  fill_holes(units, candidates, [](const UnitCandidate&, int) { return true; });
  UnitSeats seats;
  for (const Unit& each : units)
    seats.members.insert(seats.members.end(), each.members.begin(), each.members.end());
  for (const UnitCandidate& each : candidates) seats.left_over.push_back(each.process);
  return seats;
}

void check_units(int unit, const std::string& shape, int minimum, int maximum, int target) {
  const std::string of = shape.empty() ? "" : fmt::format(" ({})", shape);
  if (unit < 1)
    throw Error(ErrorCode::invalid_argument, "membership",
                fmt::format("a unit of {} workers{}: a unit has at least 1", unit, of),
                "--unit 1 or more");
  const auto check = [&](const char* what, int number) {
    if (number % unit == 0) return;
    const int below = number / unit * unit;
    throw Error(
        ErrorCode::invalid_argument, "membership",
        fmt::format("the {} of {} workers is not a multiple of the unit of {}{}: workers "
                    "come and go in whole units",
                    what, number, unit, of),
        below == 0 ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit));
  };
  check("minimum", minimum);
  check("maximum", maximum);
  check("number", target);
}

}  // namespace trireme::membership
