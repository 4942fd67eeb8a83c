#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/train/replica_standing.h>
#include <algorithm>
#include <array>
#include <vector>

namespace trireme {
namespace {

struct StandingRow {
  Standing standing;
  std::string_view name;
  std::vector<Standing> next;
};

const std::array<StandingRow, kStandings>& standing_table() {
  using enum Standing;
  static const std::array<StandingRow, kStandings> table = {{
      {fresh, "fresh", {joining}},
      {joining, "joining", {between_steps, fresh}},
      {parted, "parted", {rejoining}},
      {rejoining, "rejoining", {between_steps, parted}},
      {between_steps, "between_steps", {in_step, going_back, regrouping, finished, parted, torn}},
      {in_step, "in_step", {between_steps, going_back, parted, torn}},
      {going_back, "going_back", {between_steps, fresh}},
      {regrouping, "regrouping", {parted, torn}},
      {finished, "finished", {parted, torn}},
      {torn, "torn", {}},
  }};
  return table;
}

const StandingRow& row_of(Standing standing) {
  return standing_table()[static_cast<size_t>(standing)];
}

}  // namespace

std::string_view to_string(Standing standing) { return row_of(standing).name; }

std::span<const Standing> next_standings(Standing standing) { return row_of(standing).next; }

void ReplicaStanding::enter(Standing next) {
  if (std::ranges::count(next_standings(standing_), next) == 0)
    throw Error(ErrorCode::internal, "train",
                fmt::format("a replica went from the standing {} to {}, which may not follow",
                            to_string(standing_), to_string(next)),
                "a report of this message; the newest checkpoint is whole");
  standing_ = next;
}

void ReplicaStanding::leave() {
  if (standing_ == Standing::torn) return;
  if (standing_ == Standing::joining || standing_ == Standing::going_back)
    enter(Standing::fresh);
  else if (standing_ != Standing::fresh && standing_ != Standing::parted)
    enter(Standing::parted);
}

bool ReplicaStanding::is_bound() const {
  return standing_ == Standing::between_steps || standing_ == Standing::in_step ||
         standing_ == Standing::regrouping || standing_ == Standing::finished;
}

bool ReplicaStanding::has_state() const {
  return is_bound() || standing_ == Standing::parted || standing_ == Standing::rejoining;
}

}  // namespace trireme
